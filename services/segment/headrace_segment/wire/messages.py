"""The messages of today's dialect. A field with a default may be missing at the end of a message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from headrace_common.operations.errors import ProtocolError

from headrace_segment.wire.codes import HEADER, Kind
from headrace_segment.wire.layout import BOOLEAN, BYTE, DATA, I32, I64, TEXT, UUID, Field, Table

WRITER_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Hello:
    """Each side's first message: the wire versions that it speaks."""

    high: int
    low: int


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """It is echoed."""


@dataclass(frozen=True, slots=True)
class SetupAppend:
    """A writer wants to append to a segment."""

    request: int
    writer: bytes
    segment: str
    token: str = ""


@dataclass(frozen=True, slots=True)
class AppendSetup:
    """`level`: the writer's last event number that is stored."""

    request: int
    segment: str
    writer: bytes
    level: int


@dataclass(frozen=True, slots=True)
class AppendBlockEnd:
    """Ends the preceding block. Its first `whole_bytes` bytes are whole events; `data` completes the last one."""

    writer: bytes
    whole_bytes: int
    data: bytes
    events: int
    level: int
    request: int = 0


@dataclass(frozen=True, slots=True)
class ConditionalAppend:
    """Appends one event if the segment's length equals `expected`."""

    writer: bytes
    level: int
    expected: int
    event: bytes
    request: int = 0


@dataclass(frozen=True, slots=True)
class DataAppended:
    """`level` and all before it is stored; `previous` was said before; `length`: the segment's."""

    writer: bytes
    level: int
    previous: int
    request: int = -1
    length: int = -1


@dataclass(frozen=True, slots=True)
class ConditionalCheckFailed:
    """The segment had another length."""

    writer: bytes
    level: int
    request: int = 0


@dataclass(frozen=True, slots=True)
class ReadSegment:
    """Bytes of a segment are wanted."""

    segment: str
    offset: int
    length: int
    token: str = ""
    request: int = 0


@dataclass(frozen=True, slots=True)
class SegmentRead:
    """Bytes of a segment."""

    segment: str
    offset: int
    at_tail: bool
    end_of_segment: bool
    data: bytes
    request: int = 0


@dataclass(frozen=True, slots=True)
class GetSegmentInfo:
    """Asks for the state of a segment."""

    request: int
    segment: str
    token: str = ""


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """`modified`: Unix time in milliseconds."""

    request: int
    segment: str
    exists: bool
    sealed: bool
    deleted: bool
    modified: int
    length: int
    start: int = 0


@dataclass(frozen=True, slots=True)
class CreateSegment:
    """Its scaling is the controller's business."""

    request: int
    segment: str
    rate: int
    scale: int
    token: str = ""
    rollover: int = 0


@dataclass(frozen=True, slots=True)
class SegmentCreated:
    """Done."""

    request: int
    segment: str


@dataclass(frozen=True, slots=True)
class SealSegment:
    """Nothing is to be appended any more."""

    request: int
    segment: str
    token: str = ""


@dataclass(frozen=True, slots=True)
class SegmentSealed:
    """Done."""

    request: int
    segment: str


@dataclass(frozen=True, slots=True)
class TruncateSegment:
    """Asks to remove the bytes before `offset`."""

    request: int
    segment: str
    offset: int
    token: str = ""


@dataclass(frozen=True, slots=True)
class SegmentTruncated:
    """Done."""

    request: int
    segment: str


@dataclass(frozen=True, slots=True)
class GetSegmentAttribute:
    """Asks for the value of an attribute of a segment."""

    request: int
    segment: str
    attribute: bytes
    token: str = ""


@dataclass(frozen=True, slots=True)
class SegmentAttribute:
    """The lowest number of 64 bits if the segment does not have it."""

    request: int
    value: int


@dataclass(frozen=True, slots=True)
class UpdateSegmentAttribute:
    """An attribute is to get `value`, if it has the `expected` one."""

    request: int
    segment: str
    attribute: bytes
    value: int
    expected: int
    token: str = ""


@dataclass(frozen=True, slots=True)
class SegmentAttributeUpdated:
    """Done, or it had another value."""

    request: int
    success: bool


@dataclass(frozen=True, slots=True)
class DeleteSegment:
    """It may go."""

    request: int
    segment: str
    token: str = ""


@dataclass(frozen=True, slots=True)
class SegmentDeleted:
    """Done."""

    request: int
    segment: str


@dataclass(frozen=True, slots=True)
class WrongHost:
    """Another host serves this segment."""

    request: int
    segment: str
    host: str
    trace: str = ""


@dataclass(frozen=True, slots=True)
class SegmentIsSealed:
    """Nothing can be appended any more."""

    request: int
    segment: str
    trace: str = ""
    offset: int = -1


@dataclass(frozen=True, slots=True)
class SegmentAlreadyExists:
    """It cannot be created again."""

    request: int
    segment: str
    trace: str = ""


@dataclass(frozen=True, slots=True)
class NoSuchSegment:
    """It was not created, or is deleted."""

    request: int
    segment: str
    trace: str = ""
    offset: int = -1


@dataclass(frozen=True, slots=True)
class SegmentIsTruncated:
    """The bytes before `start` are gone."""

    request: int
    segment: str
    start: int
    trace: str = ""
    offset: int = -1


@dataclass(frozen=True, slots=True)
class InvalidEventNumber:
    """The writer's numbers do not rise."""

    writer: bytes
    request: int
    trace: str
    level: int


@dataclass(frozen=True, slots=True)
class OperationUnsupported:
    """It is not served here."""

    request: int
    operation: str
    trace: str = ""


TOKEN_CHECK_FAILED: Final = 0
TOKEN_EXPIRED: Final = 1


@dataclass(frozen=True, slots=True)
class AuthTokenCheckFailed:
    """The client may not do it. `code`: `TOKEN_CHECK_FAILED` or `TOKEN_EXPIRED`."""

    request: int
    trace: str
    code: int


def _read_event(body: bytes, at: int) -> tuple[Any, int]:
    if at + HEADER.size > len(body):
        raise ProtocolError("a message that ends inside a field")
    kind, length = HEADER.unpack_from(body, at)
    at += HEADER.size
    if kind != Kind.EVENT or at + length > len(body):
        raise ProtocolError("no event where one is expected")
    return body[at : at + length], at + length


EVENT: Final = Field(_read_event, lambda data: HEADER.pack(Kind.EVENT, len(data)) + data)

MESSAGES: Final = Table(
    {
        Kind.HELLO: (Hello, (I32, I32)),
        Kind.KEEP_ALIVE: (KeepAlive, ()),
        Kind.SETUP_APPEND: (SetupAppend, (I64, UUID, TEXT, TEXT)),
        Kind.APPEND_SETUP: (AppendSetup, (I64, TEXT, UUID, I64)),
        Kind.END_APPEND_BLOCK: (AppendBlockEnd, (UUID, I32, DATA, I32, I64, I64)),
        Kind.CONDITIONAL_APPEND: (ConditionalAppend, (UUID, I64, I64, EVENT, I64)),
        Kind.DATA_APPENDED: (DataAppended, (UUID, I64, I64, I64, I64)),
        Kind.CONDITIONAL_CHECK_FAILED: (ConditionalCheckFailed, (UUID, I64, I64)),
        Kind.READ_SEGMENT: (ReadSegment, (TEXT, I64, I32, TEXT, I64)),
        Kind.SEGMENT_READ: (SegmentRead, (TEXT, I64, BOOLEAN, BOOLEAN, DATA, I64)),
        Kind.GET_SEGMENT_INFO: (GetSegmentInfo, (I64, TEXT, TEXT)),
        Kind.SEGMENT_INFO: (SegmentInfo, (I64, TEXT, BOOLEAN, BOOLEAN, BOOLEAN, I64, I64, I64)),
        Kind.CREATE_SEGMENT: (CreateSegment, (I64, TEXT, I32, BYTE, TEXT, I64)),
        Kind.SEGMENT_CREATED: (SegmentCreated, (I64, TEXT)),
        Kind.SEAL_SEGMENT: (SealSegment, (I64, TEXT, TEXT)),
        Kind.SEGMENT_SEALED: (SegmentSealed, (I64, TEXT)),
        Kind.TRUNCATE_SEGMENT: (TruncateSegment, (I64, TEXT, I64, TEXT)),
        Kind.SEGMENT_TRUNCATED: (SegmentTruncated, (I64, TEXT)),
        Kind.GET_SEGMENT_ATTRIBUTE: (GetSegmentAttribute, (I64, TEXT, UUID, TEXT)),
        Kind.SEGMENT_ATTRIBUTE: (SegmentAttribute, (I64, I64)),
        Kind.UPDATE_SEGMENT_ATTRIBUTE: (UpdateSegmentAttribute, (I64, TEXT, UUID, I64, I64, TEXT)),
        Kind.SEGMENT_ATTRIBUTE_UPDATED: (SegmentAttributeUpdated, (I64, BOOLEAN)),
        Kind.DELETE_SEGMENT: (DeleteSegment, (I64, TEXT, TEXT)),
        Kind.SEGMENT_DELETED: (SegmentDeleted, (I64, TEXT)),
        Kind.WRONG_HOST: (WrongHost, (I64, TEXT, TEXT, TEXT)),
        Kind.SEGMENT_IS_SEALED: (SegmentIsSealed, (I64, TEXT, TEXT, I64)),
        Kind.SEGMENT_ALREADY_EXISTS: (SegmentAlreadyExists, (I64, TEXT, TEXT)),
        Kind.NO_SUCH_SEGMENT: (NoSuchSegment, (I64, TEXT, TEXT, I64)),
        Kind.SEGMENT_IS_TRUNCATED: (SegmentIsTruncated, (I64, TEXT, I64, TEXT, I64)),
        Kind.INVALID_EVENT_NUMBER: (InvalidEventNumber, (UUID, I64, TEXT, I64)),
        Kind.OPERATION_UNSUPPORTED: (OperationUnsupported, (I64, TEXT, TEXT)),
        Kind.AUTH_TOKEN_CHECK_FAILED: (AuthTokenCheckFailed, (I64, TEXT, I32)),
    },
    grows=True,
)


def append_block(writer: bytes, content: bytes) -> bytes:
    """An AppendBlock: whole events, and the bytes behind them."""
    return HEADER.pack(Kind.BEGIN_APPEND_BLOCK, WRITER_BYTES + len(content)) + writer + content
