"""Today's dialect, as Pravega's clients speak it in the wire versions 5 to 17: its messages, and a client's bytes to requests.

Messages grow at their end: missing fields there have a default, unknown ones are skipped. `request`: a reply repeats its
request's. Levels are event numbers. `trace` is a server's, and empty.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.parser import Steps
from typing_extensions import override

from headrace_segment.wire.codes import HEADER, Kind
from headrace_segment.wire.layout import BOOLEAN, BYTE, DATA, I32, I64, TEXT, UUID, Table
from headrace_segment.wire.parser import Block, MessageParser

OLDEST: Final = 5
NEWEST: Final = 17
_REQUEST: Final = 8
WRITER_BYTES: Final = 16

MESSAGES: Final = Table(grows=True)
_row: Final = MESSAGES.row
_ABOUT: Final = {"request": I64, "segment": TEXT}
_TOKEN: Final = {"token": TEXT("")}
_TRACE: Final = {"trace": TEXT("")}

# Of either side: the wire versions that it speaks; a message that is echoed.
Hello = _row(Kind.HELLO, "Hello", high=I32, low=I32)
KeepAlive = _row(Kind.KEEP_ALIVE, "KeepAlive")

# Of clients. A block's first `whole_bytes` bytes are whole events, and the end's `data` completes the last one.
SetupAppend = _row(Kind.SETUP_APPEND, "SetupAppend", request=I64, writer=UUID, segment=TEXT, **_TOKEN)
AppendBlockEnd = _row(
    Kind.END_APPEND_BLOCK, "AppendBlockEnd",
    writer=UUID, whole_bytes=I32, data=DATA, events=I32, level=I64, request=I64(0),
)  # fmt: skip
ReadSegment = _row(Kind.READ_SEGMENT, "ReadSegment", segment=TEXT, offset=I64, length=I32, **_TOKEN, request=I64(0))
GetSegmentInfo = _row(Kind.GET_SEGMENT_INFO, "GetSegmentInfo", **_ABOUT, **_TOKEN)
CreateSegment = _row(Kind.CREATE_SEGMENT, "CreateSegment", **_ABOUT, rate=I32, scale=BYTE, **_TOKEN, rollover=I64(0))

# Of the server. `previous`: the level in the reply before; `length`: the segment's; `modified`: Unix time in milliseconds.
AppendSetup = _row(Kind.APPEND_SETUP, "AppendSetup", **_ABOUT, writer=UUID, level=I64)
DataAppended = _row(
    Kind.DATA_APPENDED, "DataAppended", writer=UUID, level=I64, previous=I64, request=I64(-1), length=I64(-1)
)
SegmentRead = _row(
    Kind.SEGMENT_READ, "SegmentRead",
    segment=TEXT, offset=I64, at_tail=BOOLEAN, end_of_segment=BOOLEAN, data=DATA, request=I64(0),
)  # fmt: skip
SegmentInfo = _row(
    Kind.SEGMENT_INFO, "SegmentInfo",
    **_ABOUT, exists=BOOLEAN, sealed=BOOLEAN, deleted=BOOLEAN, modified=I64, length=I64, start=I64(0),
)  # fmt: skip
SegmentCreated = _row(Kind.SEGMENT_CREATED, "SegmentCreated", **_ABOUT)
SegmentAlreadyExists = _row(Kind.SEGMENT_ALREADY_EXISTS, "SegmentAlreadyExists", **_ABOUT, **_TRACE)
NoSuchSegment = _row(Kind.NO_SUCH_SEGMENT, "NoSuchSegment", **_ABOUT, **_TRACE, offset=I64(-1))
SegmentIsTruncated = _row(
    Kind.SEGMENT_IS_TRUNCATED, "SegmentIsTruncated", **_ABOUT, start=I64, **_TRACE, offset=I64(-1)
)
OperationUnsupported = _row(Kind.OPERATION_UNSUPPORTED, "OperationUnsupported", request=I64, operation=TEXT, **_TRACE)

_END: Final = struct.Struct(">16sii")  # an AppendBlockEnd: writer, whole bytes, size of the data
_BEHIND: Final = struct.Struct(">iqq")  # and after the data: events, level, request


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A request that is not served. Answered by OperationUnsupported."""

    request: int
    kind: int


_SERVED: Final = {
    Kind.HELLO,
    Kind.KEEP_ALIVE,
    Kind.SETUP_APPEND,
    Kind.READ_SEGMENT,
    Kind.GET_SEGMENT_INFO,
    Kind.CREATE_SEGMENT,
}
_NEVER_ALONE: Final = {Kind.EVENT, Kind.PARTIAL_MESSAGE}


class TodayDecoder(MessageParser[Any]):
    """Decodes the requests of a client of wire versions 5 to 17: messages, Block and Unsupported."""

    @override
    def messages(self) -> Steps:
        while True:
            self.begins()
            yield from self._request()  # a generator of its own: nothing of the last request is kept while nothing comes

    def _request(self) -> Steps:
        kind, length = yield from self._header(None, "")
        if kind in _NEVER_ALONE:
            raise ProtocolError(f"a message of type {kind} from a client")
        self._fits(length)
        body = yield length
        if kind == Kind.BEGIN_APPEND_BLOCK:
            self.held = len(body)
            if len(body) < WRITER_BYTES:
                raise ProtocolError("an AppendBlock without a writer")
            _, length = yield from self._header({Kind.END_APPEND_BLOCK}, "in a block")
            self._fits(length)
            yield self._append(_end_fields((yield length)), body)
        elif kind == Kind.END_APPEND_BLOCK:
            yield self._append(_end_fields(body), None)
        elif kind in _SERVED:
            request = MESSAGES.decode(kind, body)
            if kind == Kind.READ_SEGMENT and request.offset < 0:
                raise ProtocolError("a negative offset")
            yield request
        elif kind != Kind.PADDING:
            number = body[-_REQUEST:] if kind in _NUMBERED_LAST else body[:_REQUEST]
            yield Unsupported(int.from_bytes(number, "big", signed=True) if len(body) >= _REQUEST else 0, kind)

    def _append(self, end: tuple[bytes, int, bytes, int, int, int], block: bytes | None) -> Block:
        """Returns a block. Without an AppendBlock all of it is in the end's data, and its number of whole bytes is ignored:
        Pravega's Java client writes 0 there, its Rust client (and so Python's) the length of the data; the segment store
        ignores it (AppendDecoder).
        """
        writer, whole_bytes, data, events, level, request = end
        if events < 0:
            raise ProtocolError("an AppendBlockEnd with a negative number of events")
        if block is not None:
            content = block[WRITER_BYTES:]
            if not block.startswith(writer):
                raise ProtocolError("an AppendBlockEnd of another writer")
            if not 0 <= whole_bytes <= len(content):
                raise ProtocolError(f"an AppendBlockEnd with {whole_bytes} of {len(content)} bytes")
            if whole_bytes < len(content):
                content = content[:whole_bytes] + _partial(content[whole_bytes:])
            data = content + data
        self._fits(len(data), "a block")
        if not data:
            raise ProtocolError("a block without data")
        return Block(writer, None, level, data, events, request)


_NUMBERED_LAST: Final = {5, 89}
"""Conditional appends, whose number comes last: they begin with a writer."""


def _end_fields(body: bytes) -> tuple[bytes, int, bytes, int, int, int]:
    """Returns the fields of an AppendBlockEnd, one for each block: mostly all are there. Raises `ProtocolError`."""
    if len(body) >= _END.size:
        writer, whole_bytes, size = _END.unpack_from(body)
        if 0 <= size <= len(body) - _END.size - _BEHIND.size:
            behind = _END.size + size
            return writer, whole_bytes, body[_END.size : behind], *_BEHIND.unpack_from(body, behind)
    end = MESSAGES.decode(Kind.END_APPEND_BLOCK, body)
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
