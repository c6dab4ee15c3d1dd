"""Today's dialect, as Pravega's clients speak it in the wire versions 5 to 17: its messages, and a client's bytes to requests.

Messages grow at their end: missing fields there have a default, unknown ones are skipped. Levels are event numbers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

from headrace_common.operations.errors import ProtocolError
from typing_extensions import override

from headrace_segment.wire import messages as said
from headrace_segment.wire.codes import FRAME_BYTES, HEADER, Kind
from headrace_segment.wire.decoder import Decoder
from headrace_segment.wire.messages import MESSAGES

OLDEST: Final = 5
NEWEST: Final = 17
_REQUEST: Final = 8

_END: Final = struct.Struct(">16sii")  # an AppendBlockEnd: writer, whole bytes, size of the data
_BEHIND: Final = struct.Struct(">iqq")  # and after the data: events, level, request


@dataclass(slots=True)  # not frozen: one for each block
class Append:
    """Whole events of a writer, which end at event number `level`."""

    writer: bytes
    data: bytes
    events: int
    level: int
    request: int


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A request that is not served. Answered by OperationUnsupported."""

    request: int
    kind: int


Request = (
    said.Hello
    | said.KeepAlive
    | said.SetupAppend
    | Append
    | said.ReadSegment
    | said.GetSegmentInfo
    | said.CreateSegment
    | said.SealSegment
    | said.TruncateSegment
    | said.DeleteSegment
    | Unsupported
)

_SERVED: Final = {
    Kind.HELLO,
    Kind.KEEP_ALIVE,
    Kind.SETUP_APPEND,
    Kind.READ_SEGMENT,
    Kind.GET_SEGMENT_INFO,
    Kind.CREATE_SEGMENT,
    Kind.SEAL_SEGMENT,
    Kind.TRUNCATE_SEGMENT,
    Kind.DELETE_SEGMENT,
}
_AWAITED: Final = (
    said.SetupAppend,
    said.CreateSegment,
    said.SealSegment,
    said.TruncateSegment,
    said.DeleteSegment,
)
REPLIES: Final = frozenset({each for each in Kind if each in MESSAGES} - _SERVED - {Kind.END_APPEND_BLOCK})
"""Messages that only a server sends."""

_NEVER_ALONE: Final = {Kind.EVENT, Kind.PARTIAL_MESSAGE} | REPLIES


class TodayDecoder(Decoder[Request]):
    """Decodes the requests of a client of wire versions 5 to 17."""

    awaited = _AWAITED

    def __init__(self, frame_bytes: int) -> None:
        super().__init__(frame_bytes)
        self._block: tuple[bytes, bytes] | None = None  # its writer, and the bytes since its begin

    @override
    def partial_bytes(self) -> int:
        return self._stream.partial_bytes() + (0 if self._block is None else 1 + len(self._block[1]))

    @override
    def _forget(self) -> None:
        self._block = None

    @override
    def _accept(self, kind: int, length: int) -> int:
        if self._block is not None and kind != Kind.END_APPEND_BLOCK:
            raise ProtocolError(f"a message of type {kind} in a block")
        if kind in _NEVER_ALONE:
            raise ProtocolError(f"a message of type {kind} from a client")
        return length

    @override
    def _take(self, kind: int, body: bytes) -> Request | None:
        if kind == Kind.BEGIN_APPEND_BLOCK:
            if len(body) < said.WRITER_BYTES:
                raise ProtocolError("an AppendBlock without a writer")
            self._block = body[: said.WRITER_BYTES], body[said.WRITER_BYTES :]
            return None
        if kind == Kind.PADDING:
            return None
        if kind == Kind.END_APPEND_BLOCK:
            return self._end(*_end_fields(body))
        if kind in _SERVED:
            request: Any = MESSAGES.decode(kind, body)
            if kind in (Kind.READ_SEGMENT, Kind.TRUNCATE_SEGMENT) and request.offset < 0:
                raise ProtocolError("a negative offset")
            return request  # type: ignore[no-any-return]
        number = body[-_REQUEST:] if kind in _NUMBERED_LAST else body[:_REQUEST]
        return Unsupported(int.from_bytes(number, "big", signed=True) if len(body) >= _REQUEST else 0, kind)

    def _end(self, writer: bytes, whole_bytes: int, data: bytes, events: int, level: int, request: int) -> Append:
        """Ends a block. Without an AppendBlock all of it is in `data`, and `whole_bytes` is ignored: Pravega's Java client writes
        0 there, its Rust client (and so Python's) the length of `data`; the segment store ignores it (AppendDecoder).
        """
        if events < 0:
            raise ProtocolError("an AppendBlockEnd with a negative number of events")
        if self._block is not None:
            data = self._block_before(writer, whole_bytes) + data
        self._block = None
        if len(data) > self._frame_bytes:
            raise ProtocolError("a block that is too large", limit=FRAME_BYTES)
        return Append(writer, data, events, level, request)

    def _block_before(self, of: bytes, whole_bytes: int) -> bytes:
        """Returns the events of the AppendBlock that ends, with the beginning of the last one, if that is cut."""
        assert self._block is not None
        writer, content = self._block
        if writer != of:
            raise ProtocolError("an AppendBlockEnd of another writer")
        if not 0 <= whole_bytes <= len(content):
            raise ProtocolError(f"an AppendBlockEnd with {whole_bytes} of {len(content)} bytes")
        return content if whole_bytes == len(content) else content[:whole_bytes] + _partial(content[whole_bytes:])


_OPERATIONS: Final = {
    5: "conditionalAppend",
    32: "updateSegmentPolicy",
    34: "getSegmentAttribute",
    36: "updateSegmentAttribute",
    40: "createTransientSegment",
    41: "locateOffset",
    58: "mergeSegments",
    68: "getTableSegmentInfo",
    70: "createTableSegment",
    71: "deleteTableSegment",
    74: "updateTableEntries",
    76: "removeTableKeys",
    78: "readTable",
    83: "readTableKeys",
    85: "readTableEntries",
    88: "readTableEntriesDelta",
    89: "conditionalBlockEnd",
    90: "mergeSegmentsBatch",
}
"""Pravega's names of the requests that are not served here."""

_NUMBERED_LAST: Final = {5, 89}
"""Those whose number comes last: they begin with a writer."""


def operation(kind: int) -> str:
    """Returns the name of a request."""
    return _OPERATIONS.get(kind, f"type {kind}")


def _end_fields(body: bytes) -> tuple[bytes, int, bytes, int, int, int]:
    """Returns the fields of an AppendBlockEnd, one for each block: mostly all are there. Raises `ProtocolError`."""
    if len(body) >= _END.size:
        writer, whole_bytes, size = _END.unpack_from(body)
        if 0 <= size <= len(body) - _END.size - _BEHIND.size:
            behind = _END.size + size
            return writer, whole_bytes, body[_END.size : behind], *_BEHIND.unpack_from(body, behind)
    end: said.AppendBlockEnd = MESSAGES.decode(Kind.END_APPEND_BLOCK, body)
    return end.writer, end.whole_bytes, end.data, end.events, end.level, end.request


def _partial(rest: bytes) -> bytes:
    """Returns the bytes after a block's whole events: nothing, padding, or the beginning of an event that the end completes."""
    if not rest:
        return b""
    if len(rest) < HEADER.size:
        raise ProtocolError("a block that ends inside a header")
    kind, length = HEADER.unpack_from(rest)
    if kind not in (Kind.PADDING, Kind.PARTIAL_MESSAGE) or length != len(rest) - HEADER.size:
        raise ProtocolError(f"a message of type {kind} and {length} bytes at the end of a block")
    return rest[HEADER.size :] if kind == Kind.PARTIAL_MESSAGE else b""
