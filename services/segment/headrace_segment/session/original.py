"""One client's conversation in the original dialect, pure.

===================  =====================================================================================================
the client says      we answer
===================  =====================================================================================================
SetupAppend          AppendSetup with the writer's level, when its session is open; NoSuchSegment. After blocks of the
                     same writer that wait, when they are stored
a block              DataAppended with the writer's level, when the block is stored: first its events on the events topic,
                     then its bytes in its segment; SegmentIsSealed, NoSuchSegment. Bytes at or below the level are
                     acknowledged again and stored once
ReadSegment          SegmentRead, SegmentIsTruncated, NoSuchSegment; after the blocks for the same segment that came before
                     it
KeepAlive            the same, at once
===================  =====================================================================================================

A gap, a block of a writer that is not set up, or a session that another connection has taken over ends the conversation: the
client comes back, and resumes from its level. Writers do not wait for each other.
"""

from __future__ import annotations

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.interface import Peer
from typing_extensions import override

from headrace_segment.events import ByteRun
from headrace_segment.questions import BytesRead, NoSegment, ReadBytes, Truncated
from headrace_segment.session.conversation import Conversation
from headrace_segment.session.limits import WAITING, SessionLimits
from headrace_segment.session.requests import CostlyReply, OpenQuestion
from headrace_segment.session.writers import Setup, Writer
from headrace_segment.store.outcomes import Appended, Refusal
from headrace_segment.store.records import Numbering
from headrace_segment.wire.original import (
    AT_TAIL,
    END_OF_SEGMENT,
    MESSAGES,
    AppendSetup,
    BeginAppendBlock,
    CompleteBlock,
    DataAppended,
    KeepAlive,
    NoSuchSegment,
    OriginalDecoder,
    ReadSegment,
    SegmentIsSealed,
    SegmentIsTruncated,
    SegmentRead,
    SetupAppend,
)

NO_REQUEST = 0
"""This dialect's requests have no numbers."""


class OriginalSession(Conversation[CompleteBlock]):
    """See `headrace_common.session.interface.Session`."""

    def __init__(self, peer: Peer, limits: SessionLimits, *, flags_in_bytes: bool = False) -> None:
        """`flags_in_bytes`: see `SegmentRead`."""
        self._decoder = OriginalDecoder(limits.frame_bytes)
        self._flags_in_bytes = flags_in_bytes
        super().__init__(peer, limits, self._decoder, MESSAGES, Numbering.BYTES)

    @override
    def receive(self, data: bytes, now_ms: int) -> None:
        for request in self._decoder.receive(data):
            if isinstance(request, KeepAlive):
                echo = CostlyReply(request, echoed=WAITING + len(request.data))
                self._waiting_bytes += echo.echoed
                self._replies.append(echo)
            elif isinstance(request, ReadSegment):
                length = min(request.length, self._limits.reply_bytes)
                ticket = next(self._question_tickets)
                self._about(ReadBytes(ticket, request.segment, request.offset, length), NO_REQUEST)
            elif isinstance(request, BeginAppendBlock):
                if request.writer not in self._writers:
                    raise self._decoder.fault("a block of a writer that is not set up")
            elif isinstance(request, SetupAppend):
                self._arrives(Setup(request.writer, request.segment), now_ms)
            else:
                self._arrives(request, now_ms)

    @override
    def _hand_out(self, writer: Writer[CompleteBlock], block: CompleteBlock, number: int, received_ms: int) -> None:
        if block.offset > writer.sent:
            raise ProtocolError(f"a block at {block.offset}, but its writer is at {writer.sent}")
        run: ByteRun | None = ByteRun.of(writer.segment, writer.id, block.offset, block.data, block.events, writer.era)
        assert run is not None
        if writer.sealed and run.after > writer.level:
            self._say_once(self._is_sealed(writer.segment, NO_REQUEST, run.after))
            self._answered_here(writer, number)
        elif run.after <= writer.sent:
            if run.after <= writer.level:  # otherwise its level is acknowledged when it is stored
                self._say_level(writer)
            self._answered_here(writer, number)
        else:
            if block.offset < writer.sent and (run := run.beyond(writer.sent)) is None:
                raise ProtocolError(
                    f"a block at {block.offset} that has no event's end at its writer's level, {writer.sent}"
                )
            self._publish(writer, run, number, NO_REQUEST, received_ms)

    @override
    def _not_set_up(self, writer: Writer[CompleteBlock], block: CompleteBlock, number: int) -> None:
        raise ProtocolError("a block of a writer that is not set up")

    @override
    def _refused(self, asked: OpenQuestion[CompleteBlock], writer: Writer[CompleteBlock], why: Refusal) -> None:
        raise ProtocolError(f"an append is refused: {why.value}")

    @override
    def _taken_over(self, writer: Writer[CompleteBlock]) -> None:
        raise ProtocolError("another connection has set up the same append")

    # What we answer

    @override
    def _acknowledge(self, writer: Writer[CompleteBlock], stored: Appended, request: int) -> None:
        writer.level = stored.level
        self._say_level(writer)

    def _say_level(self, writer: Writer[CompleteBlock]) -> None:
        last = self._replies.newest
        if isinstance(last, DataAppended) and last.writer == writer.id and last.level < writer.level:
            self._replies.pop()
        self._replies.append(DataAppended(writer.id, writer.level))

    @override
    def _append_setup(self, segment: str, request: int, writer: Writer[CompleteBlock]) -> object:
        return AppendSetup(segment, writer.id, writer.level)

    @override
    def _no_such_segment(self, segment: str, request: int) -> object:
        return NoSuchSegment(segment)

    @override
    def _is_sealed(self, segment: str, request: int, level: int) -> object:
        return SegmentIsSealed(segment)

    @override
    def _segment_answered(self, asked: OpenQuestion[CompleteBlock], answer: object) -> None:
        question = asked.question
        assert isinstance(question, ReadBytes)
        if isinstance(answer, BytesRead):
            flags, data = AT_TAIL * answer.at_tail | END_OF_SEGMENT * answer.end_of_segment, answer.data
            if self._flags_in_bytes:
                flags, data = int(answer.at_tail), bytes((answer.end_of_segment,)) + data
            read = SegmentRead(question.segment, question.offset, flags, data)
            self._replies.append(CostlyReply(read, read=bool(answer.data)))
        elif isinstance(answer, Truncated):
            self._replies.append(SegmentIsTruncated(question.segment, answer.start))
        else:
            assert isinstance(answer, NoSegment)
            self._replies.append(NoSuchSegment(question.segment))
