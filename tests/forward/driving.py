"""Drives a Forward session as a connection and a publisher would, with no event loop: bytes in, everything it says out."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgpack
import orjson
from headrace_common.errors import ProtocolError
from headrace_common.event import HEADERS, Reject
from headrace_common.record import decode
from headrace_common.session import Peer
from headrace_common.settings import LimitSettings
from headrace_forward.access import security
from headrace_forward.events import MessageFrame
from headrace_forward.session import ForwardSession
from headrace_forward.settings import ForwardSection

NOW_MS = 1_700_000_123_456
"""When everything is received: 2023-11-14T22:15:23.456Z."""

FULL = os.environ.get("HEADRACE_FULL") == "1"


def examples(full: int) -> int:
    """How many examples a property is tried on: a fifth of them where time is short."""
    return full if FULL else full // 5


PEER = Peer("192.0.2.7", 54321, "192.0.2.7")


@dataclass(frozen=True)
class Seen:
    """An event, decoded from its record."""

    headers: dict[str, bytes]
    value: bytes

    @property
    def id(self) -> str:
        return self.headers["ce_id"].decode()

    @property
    def time(self) -> str:
        return self.headers["ce_time"].decode()

    @property
    def tag(self) -> str:
        return self.headers["ce_subject"].decode()

    @property
    def record(self) -> Any:
        return orjson.loads(self.value)

    @property
    def content(self) -> Any:
        """The record, or the bytes of what is none."""
        return self.record if self.headers["content-type"] == b"application/json" else self.value

    @property
    def attributes(self) -> dict[str, Any]:
        return orjson.loads(self.headers.get("ce_attributes", b"{}"))


def seen(event: bytes) -> Seen:
    value, pairs = decode(event)
    names = [name for name, _ in pairs]
    assert names == list(HEADERS[: len(names)])
    assert len(names) >= 7
    return Seen(dict(pairs), value)


@dataclass
class Outcome:
    """All that came of some bytes."""

    parts: list[list[Seen | Reject]] = field(default_factory=list)
    """By frame."""
    replies: list[bytes] = field(default_factory=list)
    """One item for each `outgoing()`."""
    error: ProtocolError | None = None
    unacknowledgeable: bool = False
    idle: bool = True

    @property
    def flat(self) -> list[Seen | Reject]:
        return [part for frame in self.parts for part in frame]

    @property
    def events(self) -> list[Seen]:
        return [part for part in self.flat if isinstance(part, Seen)]

    @property
    def rejects(self) -> list[Reject]:
        return [part for part in self.flat if isinstance(part, Reject)]

    def comparable(self) -> Any:
        """What must not depend on how the bytes were split: all but the random part of unique ids."""
        parts = [[_without_chance(part) for part in frame] for frame in self.parts]
        error = None if self.error is None else (str(self.error), self.error.limit, self.error.offset)
        return parts, self.replies, error, self.unacknowledgeable, self.idle


def _without_chance(part: Seen | Reject) -> Any:
    def kind(name: bytes) -> bytes:
        return name if name.startswith(b"d.") else name[:2]

    if isinstance(part, Seen):
        return {**part.headers, "ce_id": kind(part.headers["ce_id"])}, part.value
    return part.reason, part.detail, part.raw, part.source, part.subject, kind(part.id), part.attributes


def session(peer: Peer = PEER, **limits: Any) -> ForwardSession:
    """With the default limits, but for those named (of either section)."""
    own = {name: limits.pop(name) for name in ForwardSection.model_fields if name in limits}
    forward = ForwardSection(**own)
    return ForwardSession(peer, LimitSettings(**limits), forward, security(forward))


def parts_of(frame: MessageFrame) -> list[Seen | Reject]:
    """A frame's parts. Growth must come before the first of them."""
    parts: list[Seen | Reject] = []
    for part in frame.parts():
        if isinstance(part, int):
            assert part == 0 or not parts
        else:
            parts.append(part if isinstance(part, Reject) else seen(part))
    return parts


def drive(pieces: Iterable[bytes], *, end: bool = True, now_ms: int = NOW_MS, **limits: Any) -> Outcome:
    """Feeds `pieces`; each frame is stored at once. `end`: then the peer ends, if nothing was wrong."""
    driven = session(**limits)
    outcome = Outcome()
    try:
        for piece in pieces:
            try:
                driven.receive(piece, now_ms)
                while driven.busy():
                    _serve(driven, outcome)
                    driven.receive(b"", now_ms)
            finally:
                _serve(driven, outcome)
        if end:
            driven.eof()
    except ProtocolError as error:
        outcome.error = error
    outcome.unacknowledgeable = driven.unacknowledgeable()
    outcome.idle = driven.idle()
    assert driven.deadline() is None
    return outcome


def _serve(driven: ForwardSession, outcome: Outcome) -> None:
    for frame in driven.frames():
        assert isinstance(frame, MessageFrame)
        parts = parts_of(frame)
        outcome.parts.append(parts)
        driven.settle(frame.ticket, len(parts), True)
    while reply := driven.outgoing():
        outcome.replies.append(reply)


def one_by_one(data: bytes) -> Iterator[bytes]:
    return (data[at : at + 1] for at in range(len(data)))


def at_random(data: bytes, chance: random.Random) -> Iterator[bytes]:
    """Pieces of 1 to 40 bytes."""
    at = 0
    while at < len(data):
        size = chance.randint(1, 40)
        yield data[at : at + size]
        at += size


def every_way(data: bytes, **limits: Any) -> Outcome:
    """The outcome of `data`, which is the same whole, byte by byte and at random splits."""
    whole = drive([data], **limits)
    expected = whole.comparable()
    assert drive(one_by_one(data), **limits).comparable() == expected
    for seed in range(3):
        assert drive(at_random(data, random.Random(seed)), **limits).comparable() == expected
    return whole


def pack(value: Any) -> bytes:
    return msgpack.packb(value, unicode_errors="surrogateescape")


def event_time(seconds: int, nanoseconds: int) -> msgpack.ExtType:
    return msgpack.ExtType(0, seconds.to_bytes(4, "big") + nanoseconds.to_bytes(4, "big"))


TIME = event_time(1_700_000_000, 123_456_789)


def message(record: bytes, time: Any = TIME, *, tag: str = "t", option: Any = None) -> bytes:
    """A message in Message mode whose record is given as msgpack."""
    option = {"chunk": "c"} if option is None else option
    return b"\x94" + pack(tag) + pack(time) + record + pack(option)


def ack(chunk: Any) -> bytes:
    """The reply to a chunk."""
    return pack({"ack": chunk})
