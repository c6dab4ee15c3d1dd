"""A block as a frame: what it publishes, made one by one while the publisher asks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from headrace_common.record.contract import OCTETS, Attribute, Reason
from headrace_common.record.event import (
    Envelope,
    FrameIds,
    Part,
    Reject,
    deterministic_id,
    rfc3339_ms,
    source,
    unique_frame_ids,
)
from headrace_common.session.interface import AT_ONCE, PAUSE, SMALL, Frame, Pause, Peer, Ticket
from typing_extensions import override

from headrace_segment.store.records import Numbering
from headrace_segment.wire.codes import HEADER, Kind

PROTOCOL: Final = "segment"
OVERHEAD: Final = 1024
"""Bytes that a block costs beyond its own."""

SLICE: Final = 4096
"""Messages that are looked at between two pauses: about a millisecond."""


class EventAttribute(StrEnum):
    """Keys of attributes that the segment service's records alone have."""

    WRITER = "writer"  # the writer's id, 32 hex digits
    LEVEL = "level"  # the writer's level behind the event: bytes, or an event number


_ABOUT: Final = f'{{"{EventAttribute.WRITER}":"%b","{EventAttribute.LEVEL}":%d,"{Attribute.TIME}":"received"}}'.encode()
"""The attributes of an event. A connection keeps them, and what orjson makes takes 4 KB however short it is."""


@dataclass(slots=True)  # not frozen: one for each block
class Run(ABC):
    """Bytes of a segment that bring a writer from one level to another: `count` events of it."""

    segment: str
    writer: bytes
    before: int
    after: int
    data: bytes
    count: int

    @abstractmethod
    def events(self) -> Iterator[tuple[int, bytes | None, bytes] | Pause]:
        """Each event's level, name and bytes. The name tells it apart from others of its writer with the same bytes, however it
        comes; None if nothing does.
        """


@dataclass(slots=True)  # not frozen: one for each block
class ByteRun(Run):
    """Whole Event messages. Levels count their bytes, header included."""

    @staticmethod
    def of(segment: str, writer: bytes, before: int, data: bytes, count: int) -> ByteRun:
        """Returns the run that begins at level `before`."""
        return ByteRun(segment, writer, before, before + len(data), data, count)

    @override
    def events(self) -> Iterator[tuple[int, bytes, bytes]]:
        at = 0
        while at < len(self.data):
            _, length = HEADER.unpack_from(self.data, at)
            start, at = at + HEADER.size, at + HEADER.size + length
            yield self.before + at, _packed(self.before + at), self.data[start:at]

    def beyond(self, level: int) -> ByteRun | None:
        """Returns the part of it above `level`; None if `level` lies within an event."""
        at, count = 0, self.count
        while self.before + at < level:
            _, length = HEADER.unpack_from(self.data, at)
            at, count = at + HEADER.size + length, count - 1
        return (
            ByteRun.of(self.segment, self.writer, level, self.data[at:], count) if self.before + at == level else None
        )


@dataclass(slots=True)  # not frozen: one for each block
class EventRun(Run):
    """The data that a client of today's dialect appends. Levels are event numbers; `count` is what the client says.

    The Java client's writers of events frame each one as an Event message. Their numbers may skip, and only the last one,
    `after`, is known: so an event's place among all that its writer has appended names it, whatever blocks it comes in. `place`
    is that of the event before the run. The numbers of a writer that begins at 1 and leaves no gap are its places. Where another
    count than was said is framed, or more than there are numbers, nothing names an event. Writers of bytes frame nothing: such a
    run is one event, named by its number. Events of writers of different `era` are never the same.
    """

    place: int = 0
    era: int = 0

    @override
    def events(self) -> Iterator[tuple[int, bytes | None, bytes] | Pause]:
        framed = 0
        for framed in self._count_frames():
            if framed % SLICE == 0:
                yield PAUSE
        if not framed:
            yield self.after, self._name(self.after), self.data
            return
        named = framed == self.count <= self.after - self.before
        dense = named and self.before in (self.after - framed, Numbering.EVENTS.first)
        at, level, place = 0, self.after - framed, self.place
        while at < len(self.data):
            _, length = HEADER.unpack_from(self.data, at)
            start, at = at + HEADER.size, at + HEADER.size + length
            level, place = level + 1, place + 1
            yield level if dense else self.after, self._name(place) if named else None, self.data[start:at]

    def _name(self, place: int) -> bytes:
        return _packed(self.era) + _packed(place) if self.era else _packed(place)

    def _count_frames(self) -> Iterator[int]:
        """Counts the Event messages that `data` consists of, one by one. The last number is 0 if it is something else."""
        at, count = 0, 0
        while at < len(self.data):
            kind, length = HEADER.unpack_from(self.data, at) if at + HEADER.size <= len(self.data) else (None, 0)
            at, count = at + HEADER.size + length, count + 1
            if kind != Kind.EVENT or at > len(self.data):
                yield 0
                return
            yield count


class BlockFrame(Frame):
    """The events of a run. See `headrace_common.session.interface.Frame`."""

    __slots__ = (
        "_envelope",
        "_event_bytes",
        "_unique_ids",
        "ordering_key",
        "received_ms",
        "run",
        "size",
        "small",
        "ticket",
    )

    def __init__(self, run: Run, ticket: Ticket, received_ms: int, envelope: Envelope, event_bytes: int) -> None:
        self.run = run
        self._envelope = envelope
        self._event_bytes = event_bytes
        self._unique_ids: FrameIds | None = None
        self.ticket = ticket
        self.received_ms = received_ms
        self.size = len(run.data) + OVERHEAD
        self.small = len(run.data) <= SMALL and run.count <= AT_ONCE
        self.ordering_key: bytes | None = run.segment.encode()

    @override
    def spoiled(self, detail: str) -> Reject:
        """The whole block, with the headers of its events; reason `internal`."""
        name = event_id(self.run, _packed(self.run.after), self.run.data)
        return self._envelope.reject(Reason.INTERNAL, detail, self.run.data, name, self._about(self.run.after))

    @override
    def parts(self) -> Iterator[Part | Pause]:
        """See `headrace_common.session.interface.Frame.parts`. Part i is event i."""
        now = rfc3339_ms(self.received_ms)
        number = 0
        for event in self.run.events():
            if isinstance(event, Pause):
                yield event
                continue
            level, named, data = event
            name = self._unique_id(number) if named is None else event_id(self.run, named, data)
            number += 1
            if len(data) > self._event_bytes:
                detail = f"{len(data)} bytes, LIMITS__EVENT_BYTES {self._event_bytes}"
                yield self._envelope.reject(Reason.OVERSIZED, detail, data, name, self._about(level))
            else:
                yield self._envelope.event(name, now, data, self._about(level))

    def _unique_id(self, number: int) -> bytes:
        """The same in each call of `parts`."""
        if self._unique_ids is None:
            self._unique_ids = unique_frame_ids()
        return self._unique_ids(number)

    def _about(self, level: int) -> bytes:
        return _ABOUT % (self.run.writer.hex().encode(), level)


def envelope(peer: Peer, segment: str) -> Envelope:
    """Returns the attributes that the events of one peer in one segment have in common."""
    return Envelope(PROTOCOL, source(PROTOCOL, peer.identity), segment, content_type=OCTETS)


def event_id(run: Run, name: bytes, data: bytes) -> bytes:
    """Returns a hash of segment, writer, the event's name there, and its bytes: the same for each repeat, by any way."""
    return deterministic_id(PROTOCOL, run.segment.encode(), run.writer, name, data)


def _packed(number: int) -> bytes:
    return (number % (1 << 64)).to_bytes(8, "big")
