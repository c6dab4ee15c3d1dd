"""The original dialect: what a client says, and what is answered.

===================  =====================================================================================================
the client says      we answer
===================  =====================================================================================================
SetupAppend          AppendSetup with the writer's level, when its session is open; NoSuchSegment. After blocks of the
                     same writer that wait, when they are stored
a block              DataAppended with the writer's level, when the block is stored: first its events on the events topic,
                     then its bytes in its segment. A block at or below the level is
                     acknowledged again and stored once
ReadSegment          SegmentRead, SegmentIsTruncated, NoSuchSegment
KeepAlive            the same, at once
===================  =====================================================================================================

A block of a writer that is not set up, or that ends above its writer's level and does not begin there, ends the conversation,
as a connection that takes the writer over does: the client comes back, and resumes from its level.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.interface import Ticket
from typing_extensions import override

from headrace_segment.events import Run
from headrace_segment.questions import BytesRead, ReadBytes
from headrace_segment.session.dialect import Block, Dialect, Request, Say, Setup, Writer
from headrace_segment.session.limits import SessionLimits
from headrace_segment.store.records import Numbering
from headrace_segment.wire.original import (
    AT_TAIL,
    MESSAGES,
    CompleteBlock,
    KeepAlive,
    OriginalDecoder,
    ReadSegment,
    SegmentRead,
    SetupAppend,
)


class OriginalDialect(Dialect):
    """See `Dialect`. Its requests have no numbers."""

    messages = MESSAGES
    numbering = Numbering.BYTES

    def __init__(self, limits: SessionLimits, tickets: Iterator[Ticket]) -> None:
        super().__init__(OriginalDecoder(limits.frame_bytes), limits, tickets)

    @override
    def heard(self, said: Any, say: Say) -> Request | None:
        if isinstance(said, SetupAppend):
            return Request(Setup(said.writer, said.segment))
        if isinstance(said, ReadSegment):
            length = min(said.length, self._limits.reply_bytes)
            return Request(ReadBytes(next(self._tickets), said.segment, said.offset, length))
        if isinstance(said, KeepAlive):
            say(said)
            return None
        assert isinstance(said, CompleteBlock)
        return Request(said)

    @override
    def run(self, writer: Writer, block: Block, say: Say) -> Run:
        assert isinstance(block, CompleteBlock)
        after = block.offset + len(block.data)
        if block.offset != writer.sent < after:
            raise ProtocolError(f"a block from {block.offset} to {after}, but its writer is at {writer.sent}")
        return Run(writer.segment, writer.id, block.offset, after, block.data, block.events, self.numbering)

    @override
    def read(self, question: ReadBytes, request: int, answer: BytesRead) -> Any:
        return SegmentRead(question.segment, question.offset, AT_TAIL * answer.at_tail, answer.data)
