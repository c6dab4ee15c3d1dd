"""The client's side of each protocol, for `demo`: what is said, and what the answers acknowledge. No sockets."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import orjson
from headrace_courier import wire as courier
from headrace_courier.replies import Acknowledged
from headrace_courier.replies import Replies as CourierReplies
from headrace_forward import wire as forward

STREAM: Final = "demo.shop"
_LEVELS: Final = ("info", "info", "info", "warn", "error")
_PATHS: Final = ("/", "/login", "/cart", "/checkout", "/search", "/api/v1/orders")


class Speaker(Protocol):
    """One connection's client."""

    def frame(self, first: int, count: int) -> bytes:
        """The next frame, which asks for an acknowledgement: `count` different events numbered from `first`."""

    def receive(self, data: bytes) -> int:
        """How many events the server's next bytes acknowledge. Raises `ProtocolError` for what makes no sense."""


def event(number: int) -> Mapping[str, Any]:
    """One line of a web shop's log."""
    return {
        "n": number,
        "level": _LEVELS[number % len(_LEVELS)],
        "path": _PATHS[number % len(_PATHS)],
        "ms": number * 7919 % 1000,
        "message": f"request {number} served",
    }


class ForwardSpeaker:
    """As fluentd: chunks, every other one compressed."""

    def __init__(self) -> None:
        self._replies = forward.Replies()
        self._waiting: dict[str | bytes, int] = {}
        self._frames = 0

    def frame(self, first: int, count: int) -> bytes:
        """See `Speaker`."""
        chunk = base64.b64encode(os.urandom(16)).decode()
        mode: forward.Mode = "CompressedPackedForward" if self._frames % 2 else "PackedForward"
        self._frames += 1
        self._waiting[chunk] = count
        now = time.time_ns()
        times = (forward.EventTime(*divmod(now + number, 10**9)) for number in range(first, first + count))
        entries = [(at, event(first + index)) for index, at in enumerate(times)]
        return forward.encode(STREAM, entries, mode=mode, chunk=chunk)

    def receive(self, data: bytes) -> int:
        """See `Speaker`."""
        return sum(self._waiting.pop(chunk) for chunk in self._replies.receive(data))


class CourierSpeaker:
    """As log-courier: HELO, then payloads, JDAT and EVNT in turns (an EVNT before VERS is nothing that we mind)."""

    def __init__(self) -> None:
        self._replies = CourierReplies()
        self._waiting: dict[bytes, int] = {}
        self._frames = 0

    def frame(self, first: int, count: int) -> bytes:
        """See `Speaker`."""
        nonce = os.urandom(courier.NONCE_BYTES)
        hello = b"" if self._frames else courier.identity(b"HELO", "2.12.0", b"LCOR")
        self._frames += 1
        self._waiting[nonce] = count
        now = time.time_ns()
        events = [
            orjson.dumps({"@timestamp": _rfc3339(now + number), "type": STREAM, **event(number)})
            for number in range(first, first + count)
        ]
        return hello + (courier.evnt if self._frames % 2 else courier.jdat)(nonce, events)

    def receive(self, data: bytes) -> int:
        """See `Speaker`. A count below the payload's is progress or a sign of life."""
        done = 0
        for reply in self._replies.receive(data):
            if isinstance(reply, Acknowledged) and reply.count == self._waiting[reply.nonce]:
                done += self._waiting.pop(reply.nonce)
        return done


def _rfc3339(nanoseconds: int) -> str:
    seconds, fraction = divmod(nanoseconds, 10**9)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{fraction:09d}Z"


SPEAKERS: Final[Mapping[str, Callable[[], Speaker]]] = {"courier": CourierSpeaker, "forward": ForwardSpeaker}
"""By service: what `demo --protocol` can speak."""

_FORWARD: Final = """\
  Fluent Bit    [OUTPUT]
                    Name                  forward
                    Match                 *
                    Host                  127.0.0.1
                    Port                  24224
                    Require_ack_response  true

  fluentd       <match **>
                  @type forward
                  require_ack_response true
                  <server>
                    host 127.0.0.1
                    port 24224
                  </server>
                </match>
"""

_COURIER: Final = """\
  log-courier   network:
                  transport: tcp          # tls: see docs/protocols/courier.md
                  servers: [ "127.0.0.1:5043" ]
"""

HOW_TO: Final[Mapping[str, tuple[int, str]]] = {"courier": (5043, _COURIER), "forward": (24224, _FORWARD)}
"""By service: its port and its clients' settings."""
