"""The client's side of each protocol, for `demo`: frames to send, and what the replies acknowledge. No sockets."""

from __future__ import annotations

import base64
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgpack
import orjson
from headrace_courier import wire as courier
from headrace_courier.replies import Acknowledged
from headrace_courier.replies import Replies as CourierReplies
from headrace_forward import wire as forward
from headrace_lumberjack import wire as lumberjack
from headrace_segment.wire import original as segment
from headrace_segment.wire.replies import Replies as SegmentReplies
from typing_extensions import override

from headrace_cli.clients.compression import Compression, forward_codec

STREAM: Final = "demo.shop"
_LEVELS: Final = ("info", "info", "info", "warn", "error")
_PATHS: Final = ("/", "/login", "/cart", "/checkout", "/search", "/api/v1/orders")


class DemoClient(Protocol):
    """The client of one connection."""

    def frame(self, first: int, count: int) -> bytes:
        """Return the next frame, of `count` different events numbered from `first`. It asks for an acknowledgement."""

    def receive(self, data: bytes) -> int:
        """Return how many events the server's next bytes acknowledge. Raises `ProtocolError` for malformed replies."""

    def repeat(self) -> None:
        """The last frame is sent a second time, right after the first."""

    def greeting(self) -> bytes:
        """What each connection begins with. The first frame brings it along."""

    def again(self) -> None:
        """Begin a new connection, on which all that is not acknowledged is sent again, in its order, behind the greeting."""


def event(number: int) -> Mapping[str, Any]:
    """Return one line of a web shop's log."""
    return {
        "n": number,
        "level": _LEVELS[number % len(_LEVELS)],
        "path": _PATHS[number % len(_PATHS)],
        "ms": number * 7919 % 1000,
        "message": f"request {number} served",
    }


Make = Callable[[int], Mapping[str, Any]]
"""Makes the event of a number."""


class DemoForwardClient(DemoClient):
    """Sends chunks as fluentd does; every second one is compressed, unless it is told how."""

    def __init__(self, make: Make = event, compression: Compression | None = None) -> None:
        self._make = make
        self._codec = forward_codec(compression)
        self._modes: Sequence[forward.Mode] = ("PackedForward", "CompressedPackedForward")
        if compression is not None:
            self._modes = self._modes[:1]
        self._replies = forward.Replies()
        self._waiting: dict[str | bytes, list[int]] = {}  # events, for each time that it is sent
        self._last = ""
        self._frames = 0

    @override
    def frame(self, first: int, count: int) -> bytes:
        chunk = base64.b64encode(os.urandom(16)).decode()
        mode = self._modes[self._frames % len(self._modes)]
        self._frames += 1
        self._waiting[chunk] = [count]
        self._last = chunk
        now = time.time_ns()
        times = (forward.EventTime(*divmod(now + number, 10**9)) for number in range(first, first + count))
        entries = [(at, self._make(first + index)) for index, at in enumerate(times)]
        if self._codec is None:
            return forward.encode(STREAM, entries, mode=mode, chunk=chunk)
        body: bytes = b"".join(msgpack.packb([at.encode(), record]) for at, record in entries)
        option = {"size": count, "chunk": chunk, "compressed": self._codec.name}
        return bytes(msgpack.packb([STREAM, self._codec.compress(body), option]))

    @override
    def receive(self, data: bytes) -> int:
        return sum(_taken(self._waiting, chunk) for chunk in self._replies.receive(data))

    @override
    def repeat(self) -> None:
        self._waiting[self._last] *= 2

    @override
    def greeting(self) -> bytes:
        return b""

    @override
    def again(self) -> None:
        self._replies = forward.Replies()


K = TypeVar("K")


def _taken(waiting: dict[K, list[int]], key: K) -> int:
    """The events of a frame that is acknowledged once more."""
    count = waiting[key].pop()
    if not waiting[key]:
        del waiting[key]
    return count


class DemoCourierClient(DemoClient):
    """Sends HELO and then payloads as log-courier does, JDAT and EVNT in turns.

    It does not wait for VERS before its first EVNT; the receiver accepts that.
    """

    def __init__(self, make: Make = event, compression: Compression | None = None) -> None:
        self._make = make
        self._level = (compression or Compression("zlib")).level_or(3)
        self._replies = CourierReplies()
        self._waiting: dict[bytes, list[int]] = {}  # events, for each time that it is sent
        self._last = b""
        self._frames = 0

    @override
    def frame(self, first: int, count: int) -> bytes:
        nonce = os.urandom(courier.NONCE_BYTES)
        hello = b"" if self._frames else self.greeting()
        self._frames += 1
        self._waiting[nonce] = [count]
        self._last = nonce
        now = time.time_ns()
        events = [
            orjson.dumps({"@timestamp": _rfc3339(now + number), "type": STREAM, **self._make(number)})
            for number in range(first, first + count)
        ]
        return hello + (courier.evnt if self._frames % 2 else courier.jdat)(nonce, events, level=self._level)

    @override
    def receive(self, data: bytes) -> int:
        # a count below the payload's size is progress or a keep-alive
        done = 0
        for reply in self._replies.receive(data):
            if isinstance(reply, Acknowledged) and reply.count == self._waiting[reply.nonce][0]:
                done += _taken(self._waiting, reply.nonce)
        return done

    @override
    def repeat(self) -> None:
        self._waiting[self._last] *= 2

    @override
    def greeting(self) -> bytes:
        return courier.identity(b"HELO", "2.12.0", b"LCOR")

    @override
    def again(self) -> None:
        self._replies = CourierReplies()


def _rfc3339(nanoseconds: int) -> str:
    seconds, fraction = divmod(nanoseconds, 10**9)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{fraction:09d}Z"


class DemoLumberjackClient(DemoClient):
    """Sends each window in one compressed frame as Filebeat does. The events have the fields that ids are made from."""

    def __init__(self, make: Make = event, compression: Compression | None = None) -> None:
        self._make = make
        self._level = 0 if compression is not None and compression.none else (compression or Compression()).level_or(3)
        self._replies = lumberjack.Replies()
        self._waiting: deque[int] = deque()
        self._agent = {"id": os.urandom(8).hex(), "ephemeral_id": os.urandom(8).hex(), "type": "filebeat"}

    @override
    def frame(self, first: int, count: int) -> bytes:
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
                    **self._make(number),
                }
                for number in range(first, first + count)
            ],
            level=self._level,
        )

    @override
    def receive(self, data: bytes) -> int:
        # a number below the window's size is progress or a keep-alive
        return sum(self._waiting.popleft() for number in self._replies.receive(data) if number >= self._waiting[0])

    @override
    def repeat(self) -> None:
        self._waiting.append(self._waiting[-1])

    @override
    def greeting(self) -> bytes:
        return b""

    @override
    def again(self) -> None:
        self._replies = lumberjack.Replies()


class DemoSegmentClient(DemoClient):
    """Writes one segment, in the original dialect: a writer of its own, and each frame a block of events."""

    def __init__(self, make: Make = event, compression: Compression | None = None) -> None:
        """`compression`: None; segments have none."""
        self._make = make
        self._replies = SegmentReplies()
        self._writer = os.urandom(16)
        self._level = 0
        self._waiting: deque[tuple[int, int]] = deque()  # level and events of each block

    @override
    def frame(self, first: int, count: int) -> bytes:
        encode = segment.MESSAGES.encode
        hello = b"" if self._level else self.greeting()
        content = b"".join(
            encode(segment.Event(orjson.dumps(self._make(number)))) for number in range(first, first + count)
        )
        before, self._level = self._level, self._level + len(content)
        self._waiting.append((self._level, count))
        begin = encode(segment.BeginAppendBlock(self._writer, before, len(content)))
        return hello + begin + content + encode(segment.EndAppendBlock(self._writer, self._level, len(content)))

    @override
    def receive(self, data: bytes) -> int:
        done = 0
        for reply in self._replies.receive(data):
            while isinstance(reply, segment.DataAppended) and self._waiting and self._waiting[0][0] <= reply.level:
                done += self._waiting.popleft()[1]
        return done

    @override
    def repeat(self) -> None:
        self._waiting.append(self._waiting[-1])

    @override
    def again(self) -> None:
        self._replies = SegmentReplies()

    @override
    def greeting(self) -> bytes:
        return segment.MESSAGES.encode(segment.SetupAppend(self._writer, STREAM))


DEMO_CLIENTS: Final[Mapping[str, Callable[..., DemoClient]]] = {
    "courier": DemoCourierClient,
    "forward": DemoForwardClient,
    "lumberjack": DemoLumberjackClient,
    "segment": DemoSegmentClient,
}
"""Clients by service, of the protocols that are streams of bytes. Each takes what makes its events (`Make`), and a `Compression`.
"""
