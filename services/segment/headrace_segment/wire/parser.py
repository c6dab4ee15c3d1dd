"""A stream of bytes, split anywhere, to messages: what both dialects and both sides share."""

from __future__ import annotations

from collections.abc import Container, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.parser import Parser, Steps
from typing_extensions import override

from headrace_segment.wire.codes import FRAME_BYTES, HEADER, MAX_BODY
from headrace_segment.wire.layout import Table

R = TypeVar("R")


@dataclass(slots=True)  # not frozen: one for each block
class Block:
    """Whole Event messages, `events` of them as the client says, that bring their writer from one level to another.

    `before`: None in today's dialect, which tells only the level after them. `request`: 0 in the original one.
    """

    writer: bytes
    before: int | None
    after: int
    data: bytes
    events: int
    request: int = 0


class MessageParser(Parser[R]):
    """A peer's bytes to what they say, of the type R. `frame_bytes`: the longest message, and the longest block."""

    def __init__(self, frame_bytes: int) -> None:
        self._frame_bytes = min(frame_bytes, MAX_BODY)
        super().__init__()

    def _header(self, may_come: Container[int] | None, where: str) -> Generator[int, bytes, tuple[int, int]]:
        """Returns the next message's type and length. `may_come`: None for all."""
        kind, length = HEADER.unpack((yield HEADER.size))
        if length > MAX_BODY:
            raise ProtocolError(f"a message of {length} bytes; the upper byte of a length is 0")
        if may_come is not None and kind not in may_come:
            raise ProtocolError(f"a message of type {kind} {where}")
        return kind, length

    def _fits(self, size: int, what: str = "a message") -> None:
        if size > self._frame_bytes:
            raise ProtocolError(f"{what} of {size} bytes", limit=FRAME_BYTES)


class ReplyParser(MessageParser[Any]):
    """A server's bytes to its messages, in the dialect of `table`."""

    def __init__(self, table: Table) -> None:
        self._table = table
        super().__init__(MAX_BODY)

    @override
    def messages(self) -> Steps:
        while True:
            self.begins()
            kind, length = yield from self._header(None, "")
            yield self._table.decode(kind, (yield length))
