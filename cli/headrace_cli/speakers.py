"""The client's side of each protocol, for `demo`: what is said, and what the answers acknowledge. No sockets."""

from __future__ import annotations

import base64
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from headrace_forward import wire as forward
from headrace_lumberjack import wire as lumberjack

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


class LumberjackSpeaker:
    """As Filebeat: a window in one compressed frame, events with what their ids are made of."""

    def __init__(self) -> None:
        self._replies = lumberjack.Replies()
        self._waiting: deque[int] = deque()
        self._agent = {"id": os.urandom(8).hex(), "ephemeral_id": os.urandom(8).hex(), "type": "filebeat"}

    def frame(self, first: int, count: int) -> bytes:
        """See `Speaker`."""
        self._waiting.append(count)
        now = time.time_ns() // 1_000_000
        at = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now // 1000))}.{now % 1000:03d}Z"
        return lumberjack.encode(
            [
                {
                    "@timestamp": at,
                    "@metadata": {"beat": STREAM, "type": "_doc"},
                    "agent": self._agent,
                    "log": {"file": {"path": "/var/log/shop.log"}, "offset": number},
                    **event(number),
                }
                for number in range(first, first + count)
            ]
        )

    def receive(self, data: bytes) -> int:
        """See `Speaker`. A number below the window's size is progress or a sign of life."""
        return sum(self._waiting.popleft() for number in self._replies.receive(data) if number >= self._waiting[0])


SPEAKERS: Final[Mapping[str, Callable[[], Speaker]]] = {"forward": ForwardSpeaker, "lumberjack": LumberjackSpeaker}
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

_LUMBERJACK: Final = """\
  Filebeat      output.logstash:
                  hosts: ["127.0.0.1:5044"]

  Logstash      output {
                  lumberjack { hosts => "..." port => 5044 ssl_certificate => "..." }    # TLS only
                }
"""

HOW_TO: Final[Mapping[str, tuple[int, str]]] = {"forward": (24224, _FORWARD), "lumberjack": (5044, _LUMBERJACK)}
"""By service: its port and its clients' settings."""
