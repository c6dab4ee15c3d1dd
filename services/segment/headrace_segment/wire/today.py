"""Today's dialect, as Pravega's clients speak it in the wire versions 5 to 17: its messages, and a client's bytes to requests.

Messages grow at their end: missing fields there have a default, unknown ones are skipped. Levels are event numbers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.parser import Steps
from typing_extensions import override

from headrace_segment.wire import messages as said
from headrace_segment.wire.codes import HEADER, Kind
from headrace_segment.wire.messages import MESSAGES
from headrace_segment.wire.parser import Block, MessageParser

OLDEST: Final = 5
NEWEST: Final = 17
_REQUEST: Final = 8

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
            if len(body) < said.WRITER_BYTES:
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
            content = block[said.WRITER_BYTES :]
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
