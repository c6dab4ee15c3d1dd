"""One client's conversation in today's dialect, pure: what Pravega's clients say to a segment store, wire versions 5 to 17.

========================  ================================================================================================
the client says           we answer
========================  ================================================================================================
Hello                     Hello with the versions that we speak; if they are not the client's, the conversation ends
SetupAppend               AppendSetup with the writer's last event number, when its session is open; NoSuchSegment
a block                   DataAppended, when the block is stored: first its events on the events topic, then its bytes in
                          its segment; SegmentIsSealed, NoSuchSegment; InvalidEventNumber, and the conversation ends
ReadSegment               SegmentRead, SegmentIsTruncated, NoSuchSegment
GetStreamSegmentInfo      StreamSegmentInfo, NoSuchSegment
CreateSegment             SegmentCreated, SegmentAlreadyExists
SealSegment               SegmentSealed, also if it is sealed already; NoSuchSegment
TruncateSegment           SegmentTruncated, also if nothing is left to cut; SegmentIsTruncated if the offset is beyond the
                          segment's end; NoSuchSegment
DeleteSegment             SegmentDeleted, NoSuchSegment
KeepAlive                 the same, at once
all else                  OperationUnsupported
========================  ================================================================================================

A reply repeats the number of its request. Requests about one segment are done in their order (`headrace_segment.session.order`).
Event numbers rise, and a client resumes above the number that AppendSetup tells it; a block whose number does not rise, or that
comes when another connection has set up the same writer, gets InvalidEventNumber. Who may not destroy hears
OperationUnsupported to SealSegment, TruncateSegment and DeleteSegment. Tokens are not looked at.

Sources: `AppendProcessor`, `PravegaRequestProcessor` and `SegmentOutputStreamImpl` of Pravega 0.13.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.interface import Peer
from typing_extensions import override

from headrace_segment import questions as ask
from headrace_segment.events import EventRun
from headrace_segment.session.conversation import Conversation
from headrace_segment.session.limits import SessionLimits
from headrace_segment.session.requests import CostlyReply, OpenQuestion
from headrace_segment.session.writers import Setup, Writer
from headrace_segment.store.outcomes import Appended, Changed, Refusal
from headrace_segment.store.records import Change, Create, Delete, Numbering, Seal, Truncate
from headrace_segment.wire import messages as said
from headrace_segment.wire.today import NEWEST, OLDEST, Append, TodayDecoder, Unsupported, operation

LEAST: Final = 8
"""Bytes that a reader gets even if it asks for less, if they are there: a message's header."""

_NO_TRACE: Final = ""

_DESTROY: Final = {
    said.SealSegment: "sealSegment",
    said.TruncateSegment: "truncateSegment",
    said.DeleteSegment: "deleteSegment",
}
"""Requests that end a segment or take its bytes away, with Pravega's names of them."""

_CHANGES: Final[dict[type, Callable[[Any], Change]]] = {
    said.CreateSegment: lambda asked: Create(),
    said.SealSegment: lambda asked: Seal(),
    said.TruncateSegment: lambda asked: Truncate(asked.offset),
    said.DeleteSegment: lambda asked: Delete(),
}
"""The record that a request becomes."""


class TodaySession(Conversation[Append]):
    """See `headrace_common.session.interface.Session`."""

    def __init__(self, peer: Peer, limits: SessionLimits, *, may_destroy: bool = False) -> None:
        """`may_destroy`: whether the client may seal, truncate and delete segments."""
        self._decoder = TodayDecoder(limits.frame_bytes)
        self._may_destroy = may_destroy
        super().__init__(peer, limits, self._decoder, said.MESSAGES, Numbering.EVENTS)

    @override
    def receive(self, data: bytes, now_ms: int) -> None:
        for request in self._decoder.receive(data):
            if isinstance(request, Append):
                self._appends(request, now_ms)
            elif isinstance(request, said.SetupAppend):
                self._arrives(Setup(request.writer, request.segment, request.request), now_ms)
            elif isinstance(request, said.KeepAlive):
                self._replies.append(request)
            elif isinstance(request, said.Hello):
                self._greets(request)
            elif isinstance(request, Unsupported):
                self._replies.append(said.OperationUnsupported(request.request, operation(request.kind)))
            elif type(request) in _DESTROY and not self._may_destroy:
                self._replies.append(said.OperationUnsupported(request.request, _DESTROY[type(request)]))
            else:
                self._asks(request)

    def _greets(self, hello: Any) -> None:
        self._replies.append(said.Hello(NEWEST, OLDEST))
        if hello.high < OLDEST or hello.low > NEWEST:
            raise self._decoder.fault(f"wire versions {hello.low} to {hello.high}; {OLDEST} to {NEWEST} are spoken")

    def _asks(self, request: Any) -> None:
        """Takes a request about a segment that belongs to no writer."""
        ticket, segment = next(self._question_tickets), request.segment
        question: ask.AboutSegment
        if isinstance(request, said.ReadSegment):
            length = min(max(request.length, LEAST), self._limits.reply_bytes)
            question = ask.ReadBytes(ticket, segment, request.offset, length)
        elif isinstance(request, said.GetSegmentInfo):
            question = ask.DescribeSegment(ticket, segment)
        else:
            question = ask.ChangeSegment(ticket, segment, _CHANGES[type(request)](request))
        self._about(question, request.request)

    # Appends

    def _appends(self, block: Append, now_ms: int) -> None:
        if not block.data:
            raise self._decoder.fault("a block without data")
        self._arrives(block, now_ms)

    @override
    def _hand_out(self, writer: Writer[Append], block: Append, number: int, received_ms: int) -> None:
        before = self._rises(writer, block)
        if writer.sealed:
            self._say_once(self._is_sealed(writer.segment, block.request, block.level))
            self._answered_here(writer, number)
            return
        run = EventRun(writer.segment, writer.id, before, block.level, block.data, block.events, writer.era)
        self._publish(writer, run, number, block.request, received_ms)

    def _rises(self, writer: Writer[Append], block: Append) -> int:
        """Returns the event number before the block's. Raises `ProtocolError`, also for a block that would be refused: how
        the bytes were split decides whether the refusal of the block before it is known yet.
        """
        before = writer.sent
        if block.level <= before:
            self._invalid(writer, block.level, block.request)
            raise ProtocolError(f"event number {block.level} does not rise above {before}")
        writer.sent = block.level
        return before

    @override
    def _not_set_up(self, writer: Writer[Append], block: Append, number: int) -> None:
        """Repeats the reply to its SetupAppend, or to a block before this one, for blocks that were on their way."""
        self._rises(writer, block)
        self._say_once(self._no_such_segment(writer.segment, block.request))
        self._answered_here(writer, number)

    @override
    def _refused(self, asked: OpenQuestion[Append], writer: Writer[Append], why: Refusal) -> None:
        question = asked.question
        if why is Refusal.SESSION and isinstance(question, ask.AppendBlock):
            self._invalid(writer, question.after, asked.request)
        raise ProtocolError(f"an append is refused: {why.value}")

    @override
    def _taken_over(self, writer: Writer[Append]) -> None:
        self._invalid(writer, writer.sent, writer.request)
        raise ProtocolError("another connection has set up the same writer")

    def _invalid(self, writer: Writer[Append], level: int, request: int) -> None:
        self._replies.append(said.InvalidEventNumber(writer.id, request, _NO_TRACE, level))

    # What we answer

    @override
    def _acknowledge(self, writer: Writer[Append], stored: Appended, request: int) -> None:
        previous, writer.level = writer.level, stored.level
        last = self._replies.newest
        if isinstance(last, said.DataAppended) and last.writer == writer.id and last.level == previous:
            previous = last.previous
            self._replies.pop()
        self._replies.append(said.DataAppended(writer.id, stored.level, previous, request, stored.length))

    @override
    def _append_setup(self, segment: str, request: int, writer: Writer[Append]) -> object:
        return said.AppendSetup(request, segment, writer.id, writer.level)

    @override
    def _no_such_segment(self, segment: str, request: int) -> object:
        return said.NoSuchSegment(request, segment)

    @override
    def _is_sealed(self, segment: str, request: int, level: int) -> object:
        return said.SegmentIsSealed(request, segment, _NO_TRACE, level)

    @override
    def _segment_answered(self, asked: OpenQuestion[Append], answer: object) -> None:
        question, request = asked.question, asked.request
        assert not isinstance(question, ask.OpenSession | ask.AppendBlock)
        if isinstance(answer, ask.LimitExceeded):
            assert isinstance(question, ask.ChangeSegment)
            raise ProtocolError(f"CreateSegment exceeds {answer.setting}", limit=answer.setting)
        reply = _reply(question, request, answer)
        self._replies.append(CostlyReply(reply, read=bool(answer.data)) if isinstance(answer, ask.BytesRead) else reply)


def _reply(question: ask.AboutSegment, request: int, answer: object) -> object:
    """Returns the reply to a request that was done, or was impossible in the state of the segment."""
    segment = question.segment
    if isinstance(answer, Changed):
        return _changed(answer, request)
    if isinstance(answer, ask.NoSegment):
        offset = question.offset if isinstance(question, ask.ReadBytes) else -1
        return said.NoSuchSegment(request, segment, _NO_TRACE, offset)
    if isinstance(answer, ask.SegmentDescription):
        return said.SegmentInfo(
            request, segment, True, answer.sealed, False, answer.modified, answer.length, answer.start
        )
    assert isinstance(question, ask.ReadBytes)
    if isinstance(answer, ask.Truncated):
        return said.SegmentIsTruncated(request, segment, answer.start, _NO_TRACE, question.offset)
    assert isinstance(answer, ask.BytesRead)
    at_tail = answer.at_tail and not answer.end_of_segment
    return said.SegmentRead(segment, question.offset, at_tail, answer.end_of_segment, answer.data, request)


def _changed(answer: Changed, request: int) -> object:
    segment, change = answer.segment, answer.record
    if answer.why is Refusal.NO_SEGMENT:
        return said.NoSuchSegment(request, segment)
    if answer.why is Refusal.EXISTS:
        return said.SegmentAlreadyExists(request, segment)
    if answer.why is not None:
        assert isinstance(change, Truncate)
        return said.SegmentIsTruncated(request, segment, answer.start, _NO_TRACE, change.offset)
    return _DONE[type(change)](request, segment)


_DONE: Final[dict[type, Callable[[int, str], object]]] = {
    Create: said.SegmentCreated,
    Seal: said.SegmentSealed,
    Truncate: said.SegmentTruncated,
    Delete: said.SegmentDeleted,
}
