"""Blocks as a frame: their records, made a few at a time while the publisher asks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from headrace_common.record.contract import OCTETS, Attribute, Reason
from headrace_common.record.encoding import field, length
from headrace_common.record.event import (
    Envelope,
    Part,
    Reject,
    deterministic_id,
    id_behind,
    id_fields,
    rfc3339_ms,
    source,
)
from headrace_common.session.interface import SMALL, SMALL_PARTS, Frame, Peer, Ticket
from typing_extensions import override

from headrace_segment.store.records import Numbering
from headrace_segment.wire.codes import HEADER, Kind

PROTOCOL: Final = "segment"
OVERHEAD: Final = 1024
"""Bytes that a block costs beyond its own."""

SLICE: Final = 4096
"""Messages that are looked at between two pauses: about a millisecond."""

RUN: Final = 64
RUN_BYTES: Final = 64 << 10
"""Events, and their bytes, that are made at once: less than a millisecond."""

_EVENT: Final = int(Kind.EVENT)  # Python looks a member of an enum up by a call


class EventAttribute(StrEnum):
    """Keys of attributes that the segment service's records alone have."""

    WRITER = "writer"  # the writer's id, 32 hex digits
    LEVEL = "level"  # the writer's level after the event: bytes, or an event number


_ABOUT: Final = (
    f'{{"{EventAttribute.WRITER}":"%b","{EventAttribute.LEVEL}":%%d,"{Attribute.TIME}":"received"}}'.encode()
)
"""The attributes of a writer's events, except the level. A connection keeps them, and a result of orjson takes 4 KB however short
it is."""


@dataclass(slots=True)  # not frozen: one for each block
class Run:
    """Bytes of a segment that bring a writer from one level to another: `count` events of it, as its client says.

    Levels count bytes of Event messages, or events, as `numbering` says.
    """

    segment: str
    writer: bytes
    before: int
    after: int
    data: bytes
    count: int
    numbering: Numbering

    def events(self) -> Iterator[tuple[int, bytes, bytes] | int]:
        """Yields the level, name and bytes of each event, and 0 as a pause. The name distinguishes it from others of its writer
        with the same bytes.

        It is the level behind the event, in whatever block it comes. A client of today's dialect numbers events one by one if it
        frames each as an Event message, as the Java client's writers of events do. If it frames nothing, its block is one event.
        With fewer or more events than it said, or more than numbers, an event's name is its block's level and its place there.
        """
        return self._by_bytes() if self.numbering is Numbering.BYTES else self._by_numbers()

    def _by_bytes(self) -> Iterator[tuple[int, bytes, bytes]]:
        at = 0
        while at < len(self.data):
            _, body = HEADER.unpack_from(self.data, at)
            start, at = at + HEADER.size, at + HEADER.size + body
            yield self.before + at, _packed(self.before + at), self.data[start:at]

    def _by_numbers(self) -> Iterator[tuple[int, bytes, bytes] | int]:
        data, size, unpack, header = self.data, len(self.data), HEADER.unpack_from, HEADER.size
        at = framed = 0
        while at < size:
            kind, body = unpack(data, at) if at + header <= size else (None, 0)
            at, framed = at + header + body, framed + 1
            if kind != _EVENT or at > size:  # it is something else
                framed = 0
                break
            if framed % SLICE == 0:
                yield 0
        if not framed:
            yield self.after, _packed(self.after), data
            return
        numbered = framed == self.count <= self.after - self.before
        at, level = 0, self.after - framed
        while at < size:
            _, body = unpack(data, at)
            start, at, level = at + header, at + header + body, level + 1
            if numbered:
                yield level, _packed(level), data[start:at]
            else:
                yield self.after, _packed(self.after) + _packed(start), data[start:at]


class BlockFrame(Frame):
    """The events of a block. See `headrace_common.session.interface.Frame`."""

    __slots__ = (
        "_envelope",
        "_event_bytes",
        "ordering_key",
        "received_ms",
        "run",
        "size",
        "small",
        "ticket",
    )

    def __init__(self, run: Run, received_ms: int, envelope: Envelope, event_bytes: int) -> None:
        """The caller must set the ticket before it hands the frame out."""
        self.run = run
        self._envelope = envelope
        self._event_bytes = event_bytes
        self.ticket: Ticket = -1
        self.received_ms = received_ms
        self.size = len(run.data) + OVERHEAD
        self.small = len(run.data) <= SMALL and run.count <= SMALL_PARTS
        self.ordering_key: bytes | None = run.segment.encode()

    @override
    def spoiled(self, detail: str) -> Reject:
        """Returns the whole block, with the headers of its last event; reason `internal`."""
        run = self.run
        name = deterministic_id(PROTOCOL, run.segment.encode(), run.writer, _packed(run.after), run.data)
        return self._envelope.reject(Reason.INTERNAL, detail, run.data, name, _about(run) % run.after)

    @override
    def runs(self) -> Iterator[int | list[Part]]:
        """Yields lists of at most `RUN` parts. Part i is event i."""
        _, before_id, after_id, kind, name_of_attributes = self._envelope.pieces
        run, limit = self.run, self._event_bytes
        # an id is a hash of segment, writer, the event's name there, and its bytes: the same for each repeat, by any way
        begin = id_fields(PROTOCOL, run.segment.encode(), run.writer)
        behind_id = after_id + field(rfc3339_ms(self.received_ms)) + kind + name_of_attributes
        about_writer = _about(run)
        made: list[Any] = []
        size = 0
        for event in run.events():
            if isinstance(event, int):
                yield event
                continue
            level, named, data = event
            name = id_behind(begin, named, data)
            about = about_writer % level
            size += len(data)
            if len(data) > limit:
                detail = f"{len(data)} bytes, LIMITS__EVENT_BYTES {limit}"
                made.append(self._envelope.reject(Reason.OVERSIZED, detail, data, name, about))
            else:  # as `Envelope.event` does, but with the parts that all of a block share
                made.append(b"".join((length(len(data)), data, before_id, name, behind_id, length(len(about)), about)))
            if len(made) == RUN or size >= RUN_BYTES:
                yield made
                made, size = [], 0
        if made:
            yield made


def _about(run: Run) -> bytes:
    return _ABOUT % run.writer.hex().encode()


def envelope(peer: Peer, segment: str) -> Envelope:
    """Returns the attributes that the events of one peer in one segment have in common."""
    return Envelope(PROTOCOL, source(PROTOCOL, peer.identity), segment, content_type=OCTETS)


def _packed(number: int) -> bytes:
    return (number % (1 << 64)).to_bytes(8, "big")
