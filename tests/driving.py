"""Drives a session of any protocol as a connection and a publisher would, with no event loop.

`tests/<protocol>/driving.py` adds what is the protocol's own: its session, its replies.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import random
import tracemalloc
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import orjson
from headrace_common.kafka.record_batch import UNLIMITED, BatchBuilder
from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import Section
from headrace_common.record.contract import HEADERS, Reason
from headrace_common.record.encoding import decode
from headrace_common.record.event import Part, Reject
from headrace_common.session.interface import ByteSession, Frame, Peer

BARREN = b"\x02\x08\x20\x80\x00" * (1 << 16) + b"\x03\x00"
"""A deflate stream (RFC 1951) of 320 KiB whose blocks, of ten bits each, give nothing: an inflater takes 0.1 s for it."""

BARREN_ZLIB = b"\x78\x01" + BARREN + b"\0\0\0\1"
BARREN_GZIP = gzip.compress(b"", mtime=0)[:10] + BARREN + bytes(8)

NOW_MS = 1_700_000_123_456
"""When everything is received: 2023-11-14T22:15:23.456Z."""

PEER = Peer("192.0.2.7", 54321, "192.0.2.7")

S = TypeVar("S", bound=Section)


def with_constants(section: type[S], limits: dict[str, Any]) -> type[S]:
    """The section, with other constants where `limits` names one; takes these out of `limits`."""
    constants = tuple((name, limits.pop(name)) for name in sorted(section.__class_vars__) if name in limits)
    return _other(section, constants) if constants else section


@functools.cache  # pydantic takes longer to make a class than a session to read an input
def _other(section: type[S], constants: tuple[tuple[str, Any], ...]) -> type[S]:
    return type("Other", (section,), dict(constants))


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
    def source(self) -> str:
        return self.headers["ce_source"].decode()

    @property
    def subject(self) -> str:
        return self.headers["ce_subject"].decode()

    @property
    def json(self) -> Any:
        return orjson.loads(self.value)

    @property
    def content(self) -> Any:
        """The JSON, or the bytes of what is none."""
        return self.json if self.headers["content-type"] == b"application/json" else self.value

    @property
    def attributes(self) -> dict[str, Any]:
        return orjson.loads(self.headers.get("ce_attributes", b"{}"))


def seen(event: bytes) -> Seen:
    value, pairs = decode(event)
    names = [name for name, _ in pairs]
    assert names == list(HEADERS[: len(names)])
    assert len(names) >= 7
    return Seen(dict(pairs), value)


def parts_of(frame: Frame, *, grows: bool = False) -> list[Seen | Reject]:
    """A frame's parts. All growth comes before the first; there is none unless it `grows`. Laid out in a batch, its events up to
    a reject are what they were.
    """
    made: list[Part] = []
    for run in frame.runs():
        if isinstance(run, int):
            assert run == 0 or (grows and not made)
        else:
            made += run if isinstance(run, list) else [run]
    batch = BatchBuilder()
    end = batch.extend(made, 0, frame.received_ms, UNLIMITED)
    assert batch.events() == made[:end]
    assert end == len(made) or isinstance(made[end], Reject)
    return [part if isinstance(part, Reject) else seen(part) for part in made]


def _id(part: Seen | Reject) -> bytes:
    return part.headers["ce_id"] if isinstance(part, Seen) else part.id


def without_chance(part: Seen | Reject) -> Any:
    """All of a part but the random half of a unique id. No bytes may make a part that says it is our mistake."""

    def kind(name: bytes) -> bytes:
        return name if name.startswith(b"d.") else name[:2]

    if isinstance(part, Seen):
        return {**part.headers, "ce_id": kind(part.headers["ce_id"])}, part.value
    assert part.reason is not Reason.INTERNAL, part.detail
    assert part.detail
    return part.reason, part.detail, part.raw, part.source, part.subject, kind(part.id), part.attributes


@dataclass
class Outcome:
    """All that came of some bytes."""

    parts: list[list[Seen | Reject]] = field(default_factory=list)
    """By frame."""
    error: ProtocolError | None = None
    partial: bool = False

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
        """What must not depend on how the bytes were split. A protocol adds its replies."""
        unique = [name for part in self.flat if (name := _id(part)).startswith(b"u.")]
        assert len(set(unique)) == len(unique), "two events share a unique id"
        parts = [[without_chance(part) for part in frame] for frame in self.parts]
        error = None if self.error is None else (str(self.error), self.error.limit, self.error.offset)
        return parts, error, self.partial


class Drive(Protocol):
    """What each protocol's `drive` can be called with."""

    def __call__(self, pieces: Iterable[bytes], **limits: Any) -> Outcome: ...


def by_input(driven: ByteSession) -> tuple[int, bool, bool]:
    """Returns what of a session's status only an input changes."""
    status = driven.status()
    return status.partial_bytes, status.busy, status.unacknowledgeable


def feed(driven: ByteSession, data: bytes, now_ms: int = NOW_MS, serve: Callable[[], None] = lambda: None) -> None:
    """`data`, and then nothing until the session is done with it, as a connection does. `serve` takes what comes out."""
    while True:
        try:
            driven.receive(data, now_ms)
        finally:
            told = by_input(driven)
            serve()
            assert by_input(driven) == told, "a driver would not learn of it"
        if not driven.status().busy:
            return
        data = b""


def feed_all(
    driven: ByteSession,
    pieces: Iterable[bytes],
    outcome: Outcome,
    serve: Callable[[], None],
    *,
    end: bool,
    now_ms: int = NOW_MS,
) -> None:
    """Feeds all pieces, until one is wrong. `end`: then the peer ends, if none was."""
    try:
        for piece in pieces:
            feed(driven, piece, now_ms, serve)
        if end:
            driven.eof()
    except ProtocolError as error:
        outcome.error = outcome.error or error  # a connection ends at the first one, which an answer may have shown
    outcome.partial = driven.status().partial_bytes > 0


def one_by_one(data: bytes) -> Iterator[bytes]:
    return (data[at : at + 1] for at in range(len(data)))


def at_random(data: bytes, chance: random.Random) -> Iterator[bytes]:
    """Pieces of 1 to 60 bytes."""
    at = 0
    while at < len(data):
        size = chance.randint(1, 60)
        yield data[at : at + size]
        at += size


def the_same_every_way(drive: Drive, data: bytes, **limits: Any) -> Any:
    """The outcome of `data`, which is the same whole, byte by byte and at random splits."""
    whole = drive([data], **limits)
    expected = whole.comparable()
    assert drive(one_by_one(data), **limits).comparable() == expected
    for seed in range(3):
        assert drive(at_random(data, random.Random(seed)), **limits).comparable() == expected
    return whole


@contextlib.contextmanager
def traced() -> Iterator[None]:
    """Inside the block `tracemalloc` counts what is allocated."""
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def finish(steps: Generator[int, None, Any]) -> Any:
    """What they make, once all are taken."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value
