"""The original dialect: what a client says, and what is answered.

===================  =====================================================================================================
the client says      we answer
===================  =====================================================================================================
SetupAppend          AppendSetup with the writer's level, when its session is open; NoSuchSegment. After blocks of the
                     same writer that wait, when they are stored
a block              DataAppended with the writer's level, when the block is stored: first its events on the events topic,
                     then its bytes in its segment; SegmentIsSealed. Bytes at or below the level are
                     acknowledged again and stored once
ReadSegment          SegmentRead, SegmentIsTruncated, NoSuchSegment
KeepAlive            the same, at once
===================  =====================================================================================================

A gap, a block of a writer that is not set up, or a session that another connection has taken over ends the conversation: the
client comes back, and resumes from its level. Writers do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.interface import Ticket
from typing_extensions import override

from headrace_segment.events import ByteRun
from headrace_segment.questions import BytesRead, ReadBytes
from headrace_segment.session.dialect import About, Block, Dialect, Say, Setup, Writer
from headrace_segment.session.limits import SessionLimits
from headrace_segment.store.records import Numbering
from headrace_segment.wire.original import (
    AT_TAIL,
    END_OF_SEGMENT,
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

    def __init__(self, limits: SessionLimits, tickets: Iterator[Ticket], *, flags_in_bytes: bool) -> None:
        """`flags_in_bytes`: see `SegmentRead`."""
        super().__init__(OriginalDecoder(limits.frame_bytes), limits, tickets)
        self._flags_in_bytes = flags_in_bytes

    @override
    def heard(self, said: Any, say: Say) -> Setup | Block | About | None:
        if isinstance(said, SetupAppend):
            return Setup(said.writer, said.segment)
        if isinstance(said, ReadSegment):
            length = min(said.length, self._limits.reply_bytes)
            return About(ReadBytes(next(self._tickets), said.segment, said.offset, length))
        if isinstance(said, KeepAlive):
            say(said)
            return None
        assert isinstance(said, CompleteBlock)
        return said

    @override
    def run(self, writer: Writer, block: Block, say: Say) -> ByteRun:
        assert isinstance(block, CompleteBlock)
        if block.offset > writer.sent:
            raise ProtocolError(f"a block at {block.offset}, but its writer is at {writer.sent}")
        run = ByteRun.of(writer.segment, writer.id, block.offset, block.data, block.events)
        if not run.before < writer.sent < run.after:
            return run
        above = run.beyond(writer.sent)
        if above is None:
            raise ProtocolError(
                f"a block at {block.offset} that has no event's end at its writer's level, {writer.sent}"
            )
        return above

    @override
    def read(self, question: ReadBytes, request: int, answer: BytesRead) -> Any:
        flags, data = AT_TAIL * answer.at_tail | END_OF_SEGMENT * answer.end_of_segment, answer.data
        if self._flags_in_bytes:
            flags, data = int(answer.at_tail), bytes((answer.end_of_segment,)) + data
        return SegmentRead(question.segment, question.offset, flags, data)
