"""Drives a Courier session as a connection and a publisher would, with no event loop."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson
from forward.driving import NOW_MS, PEER, Seen, at_random, one_by_one, seen
from headrace_common.errors import ProtocolError
from headrace_common.event import Reject
from headrace_common.session import Frame, Peer
from headrace_courier.events import CourierFrame
from headrace_courier.replies import Acknowledged, Replies
from headrace_courier.session import CourierSession
from headrace_courier.settings import CourierLimits, CourierSection
from headrace_courier.wire import HEADER, Kind, entry

NONCE = bytes(range(16))
HELO = HEADER.pack(b"HELO", 0)


def session(
    peer: Peer = PEER, ignored: list[Kind] | None = None, subject_bytes: int = 1024, **limits: Any
) -> CourierSession:
    """With the default limits, but for those named."""
    note = (lambda kind: None) if ignored is None else ignored.append
    return CourierSession(peer, CourierLimits(**limits), CourierSection(subject_bytes=subject_bytes), note)


def parts_of(frame: Frame) -> list[Seen | Reject]:
    parts: list[Seen | Reject] = []
    for part in frame.parts():
        assert not isinstance(part, int)  # all growth is over before a payload is handed out
        parts.append(part if isinstance(part, Reject) else seen(part))
    return parts


@dataclass
class Outcome:
    """All that came of some bytes."""

    parts: list[list[Seen | Reject]] = field(default_factory=list)
    """By payload."""
    replies: list[Any] = field(default_factory=list)
    error: ProtocolError | None = None
    ignored: Counter[Kind] = field(default_factory=Counter)
    idle: bool = True
    held: int = 0

    @property
    def flat(self) -> list[Seen | Reject]:
        return [part for payload in self.parts for part in payload]

    @property
    def events(self) -> list[Seen]:
        return [part for part in self.flat if isinstance(part, Seen)]

    @property
    def rejects(self) -> list[Reject]:
        return [part for part in self.flat if isinstance(part, Reject)]

    def comparable(self) -> Any:
        """What must not depend on how the bytes were split. A PONG overtakes what waits for Kafka."""
        error = self.error and (str(self.error).split(":")[0], self.error.limit, self.error.offset)
        return self.parts, self.acknowledged, self.others, error, self.ignored, self.idle

    @property
    def acknowledged(self) -> list[tuple[bytes, int]]:
        return [(reply.nonce, reply.count) for reply in self.replies if isinstance(reply, Acknowledged)]

    @property
    def others(self) -> list[Any]:
        return [reply for reply in self.replies if not isinstance(reply, Acknowledged)]


def digest(driven: CourierSession, data: bytes, now_ms: int = NOW_MS) -> None:
    """Bytes, and then nothing until it is done with them; what a connection does."""
    driven.receive(data, now_ms)
    while driven.busy():
        driven.receive(b"", now_ms)


def drive(pieces: Iterable[bytes], *, end: bool = True, peer: Peer = PEER, **limits: Any) -> Outcome:
    """Feeds `pieces`; each payload is stored at once. `end`: then the peer ends, if nothing was wrong."""
    ignored: list[Kind] = []
    driven = session(peer, ignored, **limits)
    outcome, replies = Outcome(), Replies()

    def serve() -> None:
        outcome.held = max(outcome.held, driven.held())
        for frame in driven.frames():
            assert isinstance(frame, CourierFrame)
            parts = parts_of(frame)
            outcome.parts.append(parts)
            driven.settle(frame.ticket, len(parts), True)
        while reply := driven.outgoing():
            outcome.replies += replies.receive(reply)

    try:
        for piece in pieces:
            try:
                driven.receive(piece, NOW_MS)
            finally:
                serve()
            while driven.busy():
                try:
                    driven.receive(b"", NOW_MS)
                finally:
                    serve()
        if end:
            driven.eof()
    except ProtocolError as error:
        outcome.error = error
    outcome.ignored = Counter(ignored)
    outcome.idle = driven.idle()
    return outcome


def every_way(data: bytes, **limits: Any) -> Outcome:
    """The outcome of `data`, which is the same whole, byte by byte and at random splits."""
    whole = drive([data], **limits)
    expected = whole.comparable()
    assert drive(one_by_one(data), **limits).comparable() == expected
    for seed in range(3):
        assert drive(at_random(data, random.Random(seed)), **limits).comparable() == expected
    return whole


def numbered(count: int, first: int = 0, **more: Any) -> list[bytes]:
    """Events as log-courier writes them."""
    return [
        orjson.dumps({"@timestamp": "2026-11-21T09:59:34.076553041Z", "n": n, "path": "/var/log/a", **more})
        for n in range(first, first + count)
    ]


def payload(
    content: bytes,
    nonce: bytes = NONCE,
    *,
    kind: bytes = b"JDAT",
    cut: int = 0,
    more: bytes = b"",
    flip: int | None = None,
    level: int = 6,
) -> bytes:
    """A payload whose content is any bytes.

    `cut`: bytes missing at the end of its stream; `more`: bytes behind it; `flip`: where a byte of it is another.
    """
    packed = bytearray(zlib.compress(content, level))
    if flip is not None:
        packed[flip] ^= 0x55
    body = nonce + bytes(packed[: len(packed) - cut]) + more
    return HEADER.pack(kind, 0xFFFFFFFF if kind == b"EVNT" else len(body)) + body


def content(events: Iterable[bytes]) -> bytes:
    return b"".join(map(entry, events))


def said(driven: CourierSession) -> list[tuple[bytes, int]]:
    """The acknowledgements that are due."""
    found = []
    while out := driven.outgoing():
        found += [(reply.nonce, reply.count) for reply in Replies().receive(out) if isinstance(reply, Acknowledged)]
    return found
