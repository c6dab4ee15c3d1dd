"""The original dialect: its messages, and a client's bytes to what they ask for.

=========  ==================================================================  ===============================
state      what may come                                                       and then
=========  ==================================================================  ===============================
IDLE       SetupAppend, ReadSegment, KeepAlive, PartialMessage                 IDLE
IDLE       BeginAppendBlock                                                    BLOCK
BLOCK      Event, PartialMessage; KeepAlive and Padding, which are skipped     BLOCK
BLOCK      EndAppendBlock                                                      IDLE; TAIL if a part is missing
TAIL       PartialMessage; KeepAlive, which is skipped                         IDLE with the last part
=========  ==================================================================  ===============================

Offsets count the bytes of whole Event messages, header included, as the segment holds them: no wrapper, no filler.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from headrace_common.operations.errors import ProtocolError
from typing_extensions import override

from headrace_segment.wire.codes import FRAME_BYTES, HEADER, MAX_BODY, Kind
from headrace_segment.wire.decoder import Decoder
from headrace_segment.wire.layout import BYTE, I32, I64, REST, TEXT, UUID, Table, wire

AT_TAIL: Final = 0x80
END_OF_SEGMENT: Final = 0x40
BEGIN_BYTES: Final = 28
"""The body of a BeginAppendBlock, without the block that it may bring along; the body of an EndAppendBlock."""

MESSAGES: Final = Table(grows=False)


@wire(MESSAGES, Kind.SETUP_APPEND)
class SetupAppend:
    """Asks to append to a segment. Answered by AppendSetup."""

    writer: UUID
    segment: TEXT


@wire(MESSAGES, Kind.APPEND_SETUP)
class AppendSetup:
    """`level`: how many bytes of this writer the segment has."""

    segment: TEXT
    writer: UUID
    level: I64


@wire(MESSAGES, Kind.BEGIN_APPEND_BLOCK)
class BeginAppendBlock:
    """A block of a writer begins at this offset of its own; up to `capacity` bytes lie between it and its end."""

    writer: UUID
    offset: I64
    capacity: I32


@wire(MESSAGES, Kind.END_APPEND_BLOCK)
class EndAppendBlock:
    """`offset`: of the block's end; `length`: of its events with their headers."""

    writer: UUID
    offset: I64
    length: I32


@wire(MESSAGES, Kind.DATA_APPENDED)
class DataAppended:
    """The bytes of this writer up to its level are stored."""

    writer: UUID
    level: I64


@wire(MESSAGES, Kind.READ_SEGMENT)
class ReadSegment:
    """Asks for bytes of a segment."""

    segment: TEXT
    offset: I64
    length: I32


@wire(MESSAGES, Kind.SEGMENT_READ)
class SegmentRead:
    """`flags`: `AT_TAIL`, `END_OF_SEGMENT`. All code of that time wrote a byte for each flag instead, 0 or 1: `flags` is then the
    first of them, and `data` begins with the other.
    """

    segment: TEXT
    offset: I64
    flags: BYTE
    data: REST


@wire(MESSAGES, Kind.KEEP_ALIVE)
class KeepAlive:
    """Outside of a block it is echoed, inside it is filler."""

    data: REST


@wire(MESSAGES, Kind.PARTIAL_MESSAGE)
class PartialMessage:
    """A piece of a message. `place`: 0 the first, 1 one between, 2 the last."""

    place: BYTE
    data: REST


@wire(MESSAGES, Kind.EVENT)
class Event:
    """An event, only within a block."""

    data: REST


@wire(MESSAGES, Kind.WRONG_HOST)
class WrongHost:
    """Another host serves this segment. `host`: ``name:port``."""

    segment: TEXT
    host: TEXT


@wire(MESSAGES, Kind.SEGMENT_IS_SEALED)
class SegmentIsSealed:
    """Nothing can be appended any more."""

    segment: TEXT


@wire(MESSAGES, Kind.SEGMENT_ALREADY_EXISTS)
class SegmentAlreadyExists:
    """It cannot be created again."""

    segment: TEXT


@wire(MESSAGES, Kind.NO_SUCH_SEGMENT)
class NoSuchSegment:
    """It was not created, or is deleted."""

    segment: TEXT


@wire(MESSAGES, Kind.SEGMENT_IS_TRUNCATED)
class SegmentIsTruncated:
    """The bytes before `start` are gone. The original text has no such message; its number and name are today's."""

    segment: TEXT
    start: I64


@dataclass(frozen=True, slots=True)
class CompleteBlock:
    """A complete block: `data` are its whole Event messages, `events` their number; `offset` is its writer's before them."""

    writer: bytes
    offset: int
    data: bytes
    events: int


Request = SetupAppend | BeginAppendBlock | CompleteBlock | ReadSegment | KeepAlive


class _State(Enum):
    IDLE = "outside of a block"
    BLOCK = "in a block"
    TAIL = "after a block that lacks a part"


_MAY_COME: Final = {
    _State.IDLE: {
        Kind.SETUP_APPEND,
        Kind.READ_SEGMENT,
        Kind.KEEP_ALIVE,
        Kind.PARTIAL_MESSAGE,
        Kind.BEGIN_APPEND_BLOCK,
    },
    _State.BLOCK: {Kind.EVENT, Kind.PARTIAL_MESSAGE, Kind.KEEP_ALIVE, Kind.PADDING, Kind.END_APPEND_BLOCK},
    _State.TAIL: {Kind.PARTIAL_MESSAGE, Kind.KEEP_ALIVE},
}
_WITHIN_A_PART: Final = {Kind.PARTIAL_MESSAGE, Kind.KEEP_ALIVE, Kind.PADDING, Kind.END_APPEND_BLOCK}


class OriginalDecoder(Decoder[Request]):
    """`frame_bytes` also bounds a message that came in parts."""

    awaited = (SetupAppend,)

    def __init__(self, frame_bytes: int) -> None:
        super().__init__(frame_bytes)
        self._state = _State.IDLE
        self._parts: bytearray | None = None  # of a message that comes in parts
        self._block = BeginAppendBlock(b"", 0, 0)
        self._began = 0  # its offset in the stream
        self._inside = False  # the block is inside of its BeginAppendBlock
        self._used = 0  # bytes on the wire between its begin and its end
        self._data = bytearray()  # its events
        self._events = 0  # how many
        self._wanted = 0  # its bytes in the end; in TAIL

    @override
    def partial_bytes(self) -> int:
        kept = self._stream.partial_bytes() + len(self._data) + len(self._parts or b"")
        return kept if self._state is _State.IDLE and self._parts is None else max(kept, 1)

    @override
    def cut_off(self) -> ProtocolError:
        """Returns the fault of a peer that ends inside a message or a block: of the block, if it is both."""
        in_block = self._state is not _State.IDLE
        error = super().cut_off()
        error.offset = self._began if in_block else error.offset
        return error

    @override
    def _forget(self) -> None:
        self._state, self._parts, self._data = _State.IDLE, None, bytearray()

    # Before a body is taken

    @override
    def _accept(self, kind: int, length: int) -> int:
        may_come = kind in _MAY_COME[self._state] and (self._parts is None or kind in _WITHIN_A_PART)
        if not may_come:
            within = ", within a message in parts" if self._parts is not None else ""
            raise ProtocolError(f"a message of type {kind} {self._state.value}{within}")
        if kind == Kind.BEGIN_APPEND_BLOCK:
            if length < BEGIN_BYTES:
                raise ProtocolError(f"a BeginAppendBlock of {length} bytes")
            self._inside = length > BEGIN_BYTES
            self._used = length - BEGIN_BYTES  # until its capacity is known
            return BEGIN_BYTES
        if self._state is _State.BLOCK and kind != Kind.END_APPEND_BLOCK:
            self._used += HEADER.size + length
            if self._used > self._block.capacity:
                raise ProtocolError(f"more than the {self._block.capacity} bytes that the block announced")
            if kind == Kind.EVENT and len(self._data) + HEADER.size + length > self._frame_bytes:
                raise ProtocolError("a block that is too large", limit=FRAME_BYTES)
        return length

    # A whole message

    @override
    def _take(self, kind: int, body: bytes) -> Request | None:
        if kind == Kind.EVENT:
            self._data += HEADER.pack(kind, len(body))
            self._data += body
            self._events += 1
            return None
        if kind == Kind.PADDING or (kind == Kind.KEEP_ALIVE and self._state is not _State.IDLE):
            return None
        request: Any = MESSAGES.decode(kind, body)
        if kind == Kind.PARTIAL_MESSAGE:
            return self._part(request)
        if kind == Kind.BEGIN_APPEND_BLOCK:
            return self._begin(request)
        if kind == Kind.END_APPEND_BLOCK:
            return self._end(request)
        if kind == Kind.READ_SEGMENT and (request.offset < 0 or request.length < 0):
            raise ProtocolError("a ReadSegment with a negative number")
        assert isinstance(request, SetupAppend | ReadSegment | KeepAlive)
        return request

    def _begin(self, block: BeginAppendBlock) -> BeginAppendBlock:
        if block.offset < 0 or block.capacity < 0:
            raise ProtocolError("a BeginAppendBlock with a negative number")
        if self._inside and self._used != block.capacity:
            raise ProtocolError(f"a BeginAppendBlock of {BEGIN_BYTES} + {self._used} bytes for {block.capacity}")
        self._block, self._used, self._state, self._began = block, 0, _State.BLOCK, self._stream.offset
        return block

    def _end(self, end: EndAppendBlock) -> CompleteBlock | None:
        block = self._block
        if end.writer != block.writer:
            raise ProtocolError("an EndAppendBlock of another writer")
        if end.length < 0 or end.offset != block.offset + end.length:
            raise ProtocolError(f"an EndAppendBlock at {end.offset}: {block.offset} + {end.length} is expected")
        if self._inside and self._used != block.capacity:
            raise ProtocolError("an EndAppendBlock inside of its BeginAppendBlock")
        self._wanted = end.length
        if self._parts is None:
            return self._complete()
        self._state = _State.TAIL
        return None

    def _complete(self) -> CompleteBlock:
        if len(self._data) != self._wanted:
            raise ProtocolError(f"a block of {len(self._data)} bytes that ends as one of {self._wanted}")
        block = CompleteBlock(self._block.writer, self._block.offset, bytes(self._data), self._events)
        self._data, self._events = bytearray(), 0
        self._state = _State.IDLE
        return block

    def _part(self, part: PartialMessage) -> CompleteBlock | None:
        if part.place not in (0, 1, 2):
            raise ProtocolError(f"a PartialMessage of kind {part.place}")
        if (part.place == 0) != (self._parts is None):
            raise ProtocolError("a PartialMessage out of its order")
        if self._parts is None:
            self._parts = bytearray()
        self._parts += part.data
        self._check_parts(self._parts, last=part.place == 2)
        if part.place != 2:
            return None
        whole, self._parts = self._parts, None
        if self._state is _State.IDLE:
            self._stream.push_back(bytes(whole))
            return None
        self._data += whole
        self._events += 1
        return self._complete() if self._state is _State.TAIL else None

    def _check_parts(self, parts: bytearray, *, last: bool) -> None:
        if len(parts) < HEADER.size:
            if last:
                raise ProtocolError("the parts of a message end inside its header")
            return
        kind, length = HEADER.unpack_from(parts)
        if kind == Kind.PARTIAL_MESSAGE:
            raise ProtocolError("a PartialMessage in parts")
        if self._state is not _State.IDLE and kind != Kind.EVENT:
            raise ProtocolError(f"a message of type {kind} in parts {self._state.value}")
        size = HEADER.size + length
        if length > MAX_BODY:
            raise ProtocolError(f"a message of {length} bytes in parts")
        if size + len(self._data) > self._frame_bytes:
            raise ProtocolError("a message in parts that is too large", limit=FRAME_BYTES)
        if len(parts) > size or (last and len(parts) != size):
            raise ProtocolError(f"parts of {len(parts)} bytes for a message of {size}")
