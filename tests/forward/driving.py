"""Drives a Forward session as a connection and a publisher would, with no event loop: bytes in, everything it says out."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import msgpack
from headrace_common.operations.settings import LimitSettings
from headrace_common.record.event import Reject
from headrace_common.session.interface import Frame, Peer
from headrace_forward.session import ForwardSession
from headrace_forward.settings import ForwardSection
from headrace_forward.wire import EventTime

from tests import driving
from tests.driving import NOW_MS, PEER, Seen, feed_all, one_by_one, the_same_every_way
from tests.native import compared

__all__ = ["NOW_MS", "PEER", "EventTime", "Seen", "one_by_one"]


Mode = Literal["Message", "Forward", "PackedForward", "CompressedPackedForward"]
Entry = tuple[EventTime | int | float | None, Mapping[str, Any]]


@dataclass
class Outcome(driving.Outcome):
    """All that came of some bytes."""

    replies: list[bytes] = field(default_factory=list)
    """One item for each `outgoing()`."""
    unacknowledgeable: bool = False

    def comparable(self) -> Any:
        return super().comparable(), self.replies, self.unacknowledgeable


def session(peer: Peer = PEER, **limits: Any) -> ForwardSession:
    """With the default limits, but for those named (of either section)."""
    section = driving.with_constants(ForwardSection, limits)
    forward = section(**{name: limits.pop(name) for name in section.model_fields if name in limits})
    given = driving.with_constants(LimitSettings, limits)(**limits)
    return ForwardSession(peer, given, forward)


def parts_of(frame: Frame) -> list[Seen | Reject]:
    return driving.parts_of(frame, grows=True)


@compared
def drive(pieces: Iterable[bytes], *, end: bool = True, now_ms: int = NOW_MS, **limits: Any) -> Outcome:
    """Feeds `pieces`; each frame is stored at once. `end`: then the peer ends, if nothing was wrong."""
    driven = session(**limits)
    outcome = Outcome()

    def serve() -> None:
        for frame in driven.frames():
            parts = parts_of(frame)
            outcome.parts.append(parts)
            driven.stored(frame.ticket, len(parts), True)
        while reply := driven.outgoing():
            outcome.replies.append(reply)

    feed_all(driven, pieces, outcome, serve, end=end, now_ms=now_ms)
    outcome.unacknowledgeable = driven.status().unacknowledgeable
    assert driven.deadline() is None
    return outcome


every_way: Callable[..., Outcome] = partial(the_same_every_way, drive)


def pack(value: Any) -> bytes:
    return msgpack.packb(value, unicode_errors="surrogateescape")


def encode(
    tag: str, entries: Sequence[Entry], *, mode: Mode = "PackedForward", chunk: str | bytes | None = None
) -> bytes:
    """Messages of `mode` that carry `entries`: one, or in Message mode one per entry, all with the same `chunk`."""
    asked: dict[str, Any] = {} if chunk is None else {"chunk": chunk}
    packed = [(time.encode() if isinstance(time, EventTime) else time, record) for time, record in entries]
    if mode == "Message":
        return b"".join(pack([tag, time, record, asked]) for time, record in packed)
    option: dict[str, Any] = {"size": len(packed), **asked}
    if mode == "Forward":
        return pack([tag, packed, option])
    body = b"".join(map(pack, packed))
    if mode == "CompressedPackedForward":
        body = gzip.compress(body, compresslevel=6, mtime=0)
        option["compressed"] = "gzip"
    return pack([tag, body, option])


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
