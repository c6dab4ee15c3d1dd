"""The messages of today's dialect. A field with a default may be missing at the end of a message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace_segment.wire.codes import HEADER, Kind
from headrace_segment.wire.layout import BOOLEAN, BYTE, DATA, I32, I64, TEXT, UUID, Table, wire

WRITER_BYTES: Final = 16

MESSAGES: Final = Table(grows=True)


@dataclass(frozen=True, slots=True)
class SegmentMessage:
    """The beginning of most messages about a segment. `request`: a reply repeats its request's."""

    request: I64
    segment: TEXT


@wire(MESSAGES, Kind.HELLO)
class Hello:
    """Each side's first message: the wire versions that it speaks."""

    high: I32
    low: I32


@wire(MESSAGES, Kind.KEEP_ALIVE)
class KeepAlive:
    """A message that is echoed."""


@wire(MESSAGES, Kind.SETUP_APPEND)
class SetupAppend:
    """Asks to append to a segment."""

    request: I64
    writer: UUID
    segment: TEXT
    token: TEXT = ""


@wire(MESSAGES, Kind.APPEND_SETUP)
class AppendSetup(SegmentMessage):
    """`level`: the writer's last event number that is stored."""

    writer: UUID
    level: I64


@wire(MESSAGES, Kind.END_APPEND_BLOCK)
class AppendBlockEnd:
    """Ends the preceding block. Its first `whole_bytes` bytes are whole events; `data` completes the last one."""

    writer: UUID
    whole_bytes: I32
    data: DATA
    events: I32
    level: I64
    request: I64 = 0


@wire(MESSAGES, Kind.DATA_APPENDED)
class DataAppended:
    """`level` and all before it is stored; `previous`: the level in the reply before; `length`: the segment's."""

    writer: UUID
    level: I64
    previous: I64
    request: I64 = -1
    length: I64 = -1


@wire(MESSAGES, Kind.READ_SEGMENT)
class ReadSegment:
    """Asks for bytes of a segment."""

    segment: TEXT
    offset: I64
    length: I32
    token: TEXT = ""
    request: I64 = 0


@wire(MESSAGES, Kind.SEGMENT_READ)
class SegmentRead:
    """Bytes of a segment."""

    segment: TEXT
    offset: I64
    at_tail: BOOLEAN
    end_of_segment: BOOLEAN
    data: DATA
    request: I64 = 0


@wire(MESSAGES, Kind.GET_SEGMENT_INFO)
class GetSegmentInfo(SegmentMessage):
    """Asks for the state of a segment."""

    token: TEXT = ""


@wire(MESSAGES, Kind.SEGMENT_INFO)
class SegmentInfo(SegmentMessage):
    """`modified`: Unix time in milliseconds."""

    exists: BOOLEAN
    sealed: BOOLEAN
    deleted: BOOLEAN
    modified: I64
    length: I64
    start: I64 = 0


@wire(MESSAGES, Kind.CREATE_SEGMENT)
class CreateSegment(SegmentMessage):
    """Its scaling is the controller's business."""

    rate: I32
    scale: BYTE
    token: TEXT = ""
    rollover: I64 = 0


@wire(MESSAGES, Kind.SEGMENT_CREATED)
class SegmentCreated(SegmentMessage):
    """Done."""


@wire(MESSAGES, Kind.SEAL_SEGMENT)
class SealSegment(SegmentMessage):
    """Asks to end appending."""

    token: TEXT = ""


@wire(MESSAGES, Kind.SEGMENT_SEALED)
class SegmentSealed(SegmentMessage):
    """Done."""


@wire(MESSAGES, Kind.TRUNCATE_SEGMENT)
class TruncateSegment(SegmentMessage):
    """Asks to remove the bytes before `offset`."""

    offset: I64
    token: TEXT = ""


@wire(MESSAGES, Kind.SEGMENT_TRUNCATED)
class SegmentTruncated(SegmentMessage):
    """Done."""


@wire(MESSAGES, Kind.DELETE_SEGMENT)
class DeleteSegment(SegmentMessage):
    """Asks to delete a segment."""

    token: TEXT = ""


@wire(MESSAGES, Kind.SEGMENT_DELETED)
class SegmentDeleted(SegmentMessage):
    """Done."""


@wire(MESSAGES, Kind.WRONG_HOST)
class WrongHost(SegmentMessage):
    """Another host serves this segment."""

    host: TEXT
    trace: TEXT = ""


@wire(MESSAGES, Kind.SEGMENT_IS_SEALED)
class SegmentIsSealed(SegmentMessage):
    """Nothing can be appended any more."""

    trace: TEXT = ""
    offset: I64 = -1


@wire(MESSAGES, Kind.SEGMENT_ALREADY_EXISTS)
class SegmentAlreadyExists(SegmentMessage):
    """It cannot be created again."""

    trace: TEXT = ""


@wire(MESSAGES, Kind.NO_SUCH_SEGMENT)
class NoSuchSegment(SegmentMessage):
    """It was not created, or is deleted."""

    trace: TEXT = ""
    offset: I64 = -1


@wire(MESSAGES, Kind.SEGMENT_IS_TRUNCATED)
class SegmentIsTruncated(SegmentMessage):
    """The bytes before `start` are gone."""

    start: I64
    trace: TEXT = ""
    offset: I64 = -1


@wire(MESSAGES, Kind.INVALID_EVENT_NUMBER)
class InvalidEventNumber:
    """The writer's numbers do not rise."""

    writer: UUID
    request: I64
    trace: TEXT
    level: I64


@wire(MESSAGES, Kind.OPERATION_UNSUPPORTED)
class OperationUnsupported:
    """The request is not served here."""

    request: I64
    operation: TEXT
    trace: TEXT = ""


def append_block(writer: bytes, content: bytes) -> bytes:
    """Returns an AppendBlock: whole events, and the bytes after them."""
    return HEADER.pack(Kind.BEGIN_APPEND_BLOCK, WRITER_BYTES + len(content)) + writer + content
