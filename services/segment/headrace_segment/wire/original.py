"""The original dialect: its messages, and a client's bytes to what they ask for.

====================  ==================================================================  ===============================
where                 what may come                                                       and then
====================  ==================================================================  ===============================
outside of a block    SetupAppend, ReadSegment, KeepAlive, PartialMessage                 the same
outside of a block    BeginAppendBlock                                                    in a block
in a block            Event, PartialMessage; KeepAlive and Padding, which are skipped     the same
in a block            EndAppendBlock                                                      outside, or after a block
after a block that    PartialMessage; KeepAlive, which is skipped                         outside with the last part
lacks a part
====================  ==================================================================  ===============================

Offsets count the bytes of whole Event messages, header included, as the segment holds them: no wrapper, no filler.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.parser import Cost, Steps
from typing_extensions import override

from headrace_segment.wire.codes import HEADER, MAX_BODY, Kind
from headrace_segment.wire.layout import BYTE, I32, I64, REST, TEXT, UUID, Table
from headrace_segment.wire.parser import Block, MessageParser

AT_TAIL: Final = 0x80
BEGIN_BYTES: Final = 28
"""The body of a BeginAppendBlock, without the block that it may bring along."""

STEP: Final = 64
STEP_WORK: Final = STEP * 512
"""Messages of a block between two notes of their work, and that work: it is 2 µs each."""

MESSAGES: Final = Table(grows=False)
_row: Final = MESSAGES.row

# Of clients. Up to `capacity` bytes lie between a block's begin and its end; `length`: of its events with their headers.
# KeepAlive is echoed outside of a block, and filler inside. `place` of a part: 0 the first, 1 one between, 2 the last.
SetupAppend = _row(Kind.SETUP_APPEND, "SetupAppend", writer=UUID, segment=TEXT)
BeginAppendBlock = _row(Kind.BEGIN_APPEND_BLOCK, "BeginAppendBlock", writer=UUID, offset=I64, capacity=I32)
Event = _row(Kind.EVENT, "Event", data=REST)
EndAppendBlock = _row(Kind.END_APPEND_BLOCK, "EndAppendBlock", writer=UUID, offset=I64, length=I32)
ReadSegment = _row(Kind.READ_SEGMENT, "ReadSegment", segment=TEXT, offset=I64, length=I32)
KeepAlive = _row(Kind.KEEP_ALIVE, "KeepAlive", data=REST)
PartialMessage = _row(Kind.PARTIAL_MESSAGE, "PartialMessage", place=BYTE, data=REST)

# Of the server. `level`: how many bytes of this writer are stored. SegmentRead's `flags`: `AT_TAIL`.
# The original text has no SegmentIsTruncated; its number and name are today's.
AppendSetup = _row(Kind.APPEND_SETUP, "AppendSetup", segment=TEXT, writer=UUID, level=I64)
DataAppended = _row(Kind.DATA_APPENDED, "DataAppended", writer=UUID, level=I64)
SegmentRead = _row(Kind.SEGMENT_READ, "SegmentRead", segment=TEXT, offset=I64, flags=BYTE, data=REST)
NoSuchSegment = _row(Kind.NO_SUCH_SEGMENT, "NoSuchSegment", segment=TEXT)
SegmentIsTruncated = _row(Kind.SEGMENT_IS_TRUNCATED, "SegmentIsTruncated", segment=TEXT, start=I64)


_PART: Final = {Kind.PARTIAL_MESSAGE, Kind.KEEP_ALIVE}
_OUTSIDE: Final = {Kind.SETUP_APPEND, Kind.READ_SEGMENT, Kind.BEGIN_APPEND_BLOCK} | _PART
_INSIDE: Final = {Kind.EVENT, Kind.PADDING, Kind.END_APPEND_BLOCK} | _PART


class OriginalDecoder(MessageParser[Any]):
    """`frame_bytes` also bounds a message that came in parts. Yields requests, and Block."""

    @override
    def messages(self) -> Steps:
        parts: bytearray | None = None
        while True:
            if parts is None:
                self.begins()
                kind, length = yield from self._header(_OUTSIDE, "outside of a block")
            else:
                kind, length = yield from self._header(_PART, "outside of a block, within a message in parts")
            if kind == Kind.BEGIN_APPEND_BLOCK:
                yield from self._block(length)
                continue
            self._fits(length)
            body = yield length
            if kind == Kind.PARTIAL_MESSAGE:
                parts, whole = self._part(parts, body, 0, events_only=False)
                self.held = len(parts)
                if whole:
                    self.unread(bytes(parts))
                    parts = None
                continue
            request = MESSAGES.decode(kind, body)
            if kind == Kind.READ_SEGMENT and (request.offset < 0 or request.length < 0):
                raise ProtocolError("a ReadSegment with a negative number")
            yield request

    def _block(self, length: int) -> Steps:
        if length < BEGIN_BYTES:
            raise ProtocolError(f"a BeginAppendBlock of {length} bytes")
        begin = MESSAGES.decode(Kind.BEGIN_APPEND_BLOCK, (yield BEGIN_BYTES))
        inside = length - BEGIN_BYTES
        if begin.offset < 0 or begin.capacity < 0:
            raise ProtocolError("a BeginAppendBlock with a negative number")
        if inside and inside != begin.capacity:
            raise ProtocolError(f"a BeginAppendBlock of {BEGIN_BYTES} + {inside} bytes for {begin.capacity}")
        self._fits(inside)
        data, events, used, seen = bytearray(), 0, 0, 0
        parts: bytearray | None = None
        end: Any = None
        while end is None or parts is not None:
            kind, length = yield from self._next_inside(parts, end)
            seen += 1
            if seen % STEP == 0:
                yield Cost(STEP_WORK)
            if kind == Kind.END_APPEND_BLOCK:
                self._fits(length)
                end = MESSAGES.decode(kind, (yield length))
                self._check_end(begin, end)
                if inside and used != inside:
                    raise ProtocolError("an EndAppendBlock inside of its BeginAppendBlock")
                continue
            used += HEADER.size + length
            if end is None and used > begin.capacity:
                raise ProtocolError(f"more than the {begin.capacity} bytes that the block announced")
            self._fits(length)
            if kind == Kind.EVENT:
                self._fits(len(data) + HEADER.size + length, "a block")
            body = yield length
            if kind == Kind.EVENT:
                data += HEADER.pack(kind, length)
                data += body
                events += 1
            elif kind == Kind.PARTIAL_MESSAGE:
                parts, whole = self._part(parts, body, len(data), events_only=True)
                if whole:
                    data += parts
                    parts, events = None, events + 1
            self.held = len(data) + len(parts or b"")
        if len(data) != end.length:
            raise ProtocolError(f"a block of {len(data)} bytes that ends as one of {end.length}")
        yield Block(begin.writer, begin.offset, end.offset, bytes(data), events)

    def _next_inside(self, parts: bytearray | None, end: Any) -> Generator[int, bytes, tuple[int, int]]:
        if end is not None:
            return (yield from self._header(_PART, "after a block that lacks a part"))
        if parts is not None:
            return (yield from self._header(_INSIDE - {Kind.EVENT}, "in a block, within a message in parts"))
        return (yield from self._header(_INSIDE, "in a block"))

    @staticmethod
    def _check_end(begin: Any, end: Any) -> None:
        if end.writer != begin.writer:
            raise ProtocolError("an EndAppendBlock of another writer")
        if end.length < 0 or end.offset != begin.offset + end.length:
            raise ProtocolError(f"an EndAppendBlock at {end.offset}: {begin.offset} + {end.length} is expected")

    def _part(self, parts: bytearray | None, body: bytes, before: int, *, events_only: bool) -> tuple[bytearray, bool]:
        """Returns the parts of a message with one more, and whether it is whole. `before`: bytes of its block before it."""
        part = MESSAGES.decode(Kind.PARTIAL_MESSAGE, body)
        if part.place not in (0, 1, 2):
            raise ProtocolError(f"a PartialMessage of kind {part.place}")
        if (part.place == 0) != (parts is None):
            raise ProtocolError("a PartialMessage out of its order")
        parts, whole = parts or bytearray(), part.place == 2
        parts += part.data
        if len(parts) < HEADER.size:
            if whole:
                raise ProtocolError("the parts of a message end inside its header")
            return parts, whole
        kind, length = HEADER.unpack_from(parts)
        if kind == Kind.PARTIAL_MESSAGE:
            raise ProtocolError("a PartialMessage in parts")
        if events_only and kind != Kind.EVENT:
            raise ProtocolError(f"a message of type {kind} in parts in a block")
        size = HEADER.size + length
        if length > MAX_BODY:
            raise ProtocolError(f"a message of {length} bytes in parts")
        self._fits(size + before, "a message in parts")
        if len(parts) > size or (whole and len(parts) != size):
            raise ProtocolError(f"parts of {len(parts)} bytes for a message of {size}")
        return parts, whole
