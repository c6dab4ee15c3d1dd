"""Blocks as a frame: their records, made a few at a time while the publisher asks."""

from __future__ import annotations

from collections.abc import Iterator
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
from headrace_segment.wire.parser import Block

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


class BlockFrame(Frame):
    """The events of a block. See `headrace_common.session.interface.Frame`."""

    __slots__ = (
        "_by_bytes",
        "_envelope",
        "_event_bytes",
        "_segment",
        "block",
        "ordering_key",
        "received_ms",
        "size",
        "small",
        "ticket",
    )

    def __init__(
        self, segment: str, block: Block, numbering: Numbering, received_ms: int, envelope: Envelope, event_bytes: int
    ) -> None:
        """The caller must set the ticket before it hands the frame out."""
        self.block = block
        self._by_bytes = numbering is Numbering.BYTES
        self._envelope = envelope
        self._event_bytes = event_bytes
        self.ticket: Ticket = -1
        self.received_ms = received_ms
        self.size = len(block.data) + OVERHEAD
        self.small = len(block.data) <= SMALL and block.events <= SMALL_PARTS
        self._segment = self.ordering_key = segment.encode()

    @override
    def spoiled(self, detail: str) -> Reject:
        """Returns the whole block, with the headers of its last event; reason `internal`."""
        block = self.block
        name = deterministic_id(PROTOCOL, self._segment, block.writer, _packed(block.after), block.data)
        return self._envelope.reject(Reason.INTERNAL, detail, block.data, name, _about(block) % block.after)

    @override
    def runs(self) -> Iterator[int | list[Part]]:
        """Yields lists of at most `RUN` parts. Part i is event i."""
        _, before_id, after_id, kind, name_of_attributes = self._envelope.pieces
        block, limit = self.block, self._event_bytes
        # an id is a hash of segment, writer, the event's level there, and its bytes: the same for each repeat, by any way
        begin = id_fields(PROTOCOL, self._segment, block.writer)
        behind_id = after_id + field(rfc3339_ms(self.received_ms)) + kind + name_of_attributes
        about_writer = _about(block)
        made: list[Any] = []
        size = 0
        for event in _events(block, self._by_bytes):
            if isinstance(event, int):
                yield event
                continue
            level, data = event
            name = id_behind(begin, _packed(level), data)
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


def _events(block: Block, by_bytes: bool) -> Iterator[tuple[int, bytes] | int]:
    """Yields each event's level, and its bytes; or a pause.

    It is the level behind the event, in whatever block it comes. A client of today's dialect numbers events one by one if it
    frames each as an Event message, as the Java client's writers of events do. If it frames nothing, or fewer or more than it
    said, or more than there are numbers, its block is one event.
    """
    data, size, unpack, header = block.data, len(block.data), HEADER.unpack_from, HEADER.size
    at, level = 0, block.after - size
    if not by_bytes:
        framed = 0
        while at < size:
            kind, body = unpack(data, at) if at + header <= size else (None, 0)
            at, framed = at + header + body, framed + 1
            if kind != _EVENT or at > size:  # it is something else
                framed = 0
                break
            if framed % SLICE == 0:
                yield 0
        assert block.before is not None
        if not framed or not framed == block.events <= block.after - block.before:
            yield block.after, data
            return
        at, level = 0, block.after - framed
    while at < size:
        _, body = unpack(data, at)
        start, at = at + header, at + header + body
        level += header + body if by_bytes else 1
        yield level, data[start:at]


def _about(block: Block) -> bytes:
    return _ABOUT % block.writer.hex().encode()


def envelope(peer: Peer, segment: str) -> Envelope:
    """Returns the attributes that the events of one peer in one segment have in common."""
    return Envelope(PROTOCOL, source(PROTOCOL, peer.identity), segment, content_type=OCTETS)


def _packed(number: int) -> bytes:
    return (number % (1 << 64)).to_bytes(8, "big")
