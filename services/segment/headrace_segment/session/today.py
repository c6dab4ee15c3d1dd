"""Today's dialect, what Pravega's clients say to a segment store in wire versions 5 to 17, and what is answered.

========================  ================================================================================================
the client says           we answer
========================  ================================================================================================
Hello                     Hello with the versions that we speak; if they are not the client's, the conversation ends
SetupAppend               AppendSetup with the writer's last event number, when its session is open; NoSuchSegment
a block                   DataAppended, when the block is stored: first its events on the events topic, then its bytes in
                          its segment; InvalidEventNumber, and the conversation ends
ReadSegment               SegmentRead, SegmentIsTruncated, NoSuchSegment
GetStreamSegmentInfo      StreamSegmentInfo, NoSuchSegment
CreateSegment             SegmentCreated, SegmentAlreadyExists
KeepAlive                 the same, at once
all else                  OperationUnsupported
========================  ================================================================================================

A reply repeats the number of its request. Event numbers rise, and a client resumes above the number that AppendSetup tells it; a
block whose number does not rise gets InvalidEventNumber. A connection ends when another one sets up a writer of its. Tokens are
not looked at.

Sources: `AppendProcessor`, `PravegaRequestProcessor` and `SegmentOutputStreamImpl` of Pravega 0.13.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.interface import Ticket
from typing_extensions import override

from headrace_segment.events import Run
from headrace_segment.questions import AboutSegment, BytesRead, CreateSegment, DescribeSegment, ReadBytes
from headrace_segment.session.dialect import Block, Dialect, Request, Say, Setup, Writer
from headrace_segment.session.limits import SessionLimits
from headrace_segment.store.records import Numbering
from headrace_segment.wire import messages as wire
from headrace_segment.wire.today import NEWEST, OLDEST, Append, TodayDecoder, Unsupported

LEAST: Final = 8
"""Bytes that a reader gets even if it asks for less, if they are there: a message's header."""

_NO_TRACE: Final = ""


class TodayDialect(Dialect):
    """See `Dialect`."""

    messages = wire.MESSAGES
    numbering = Numbering.EVENTS

    def __init__(self, limits: SessionLimits, tickets: Iterator[Ticket]) -> None:
        super().__init__(TodayDecoder(limits.frame_bytes), limits, tickets)

    @override
    def heard(self, said: Any, say: Say) -> Request | None:
        if isinstance(said, Append):
            if not said.data:
                raise ProtocolError("a block without data")
            return Request(said, said.request)
        if isinstance(said, wire.SetupAppend):
            return Request(Setup(said.writer, said.segment), said.request)
        if isinstance(said, wire.KeepAlive):
            say(said)
        elif isinstance(said, wire.Hello):
            _greet(said, say)
        elif isinstance(said, Unsupported):
            say(wire.OperationUnsupported(said.request, f"type {said.kind}"))
        else:
            return Request(self._question(said), said.request)
        return None

    def _question(self, said: Any) -> AboutSegment:
        ticket, segment = next(self._tickets), said.segment
        if isinstance(said, wire.ReadSegment):
            return ReadBytes(ticket, segment, said.offset, min(max(said.length, LEAST), self._limits.reply_bytes))
        if isinstance(said, wire.GetSegmentInfo):
            return DescribeSegment(ticket, segment)
        return CreateSegment(ticket, segment)

    @override
    def run(self, writer: Writer, block: Block, say: Say) -> Run:
        """Raises `ProtocolError` also for a block that would be refused: how the bytes were split decides whether the refusal of
        the block before it is known yet.
        """
        assert isinstance(block, Append)
        if block.level <= writer.sent:
            say(wire.InvalidEventNumber(writer.id, block.request, _NO_TRACE, block.level))
            raise ProtocolError(f"event number {block.level} does not rise above {writer.sent}")
        return Run(writer.segment, writer.id, writer.sent, block.level, block.data, block.events, self.numbering)

    @override
    def read(self, question: ReadBytes, request: int, answer: BytesRead) -> Any:
        return wire.SegmentRead(
            question.segment, question.offset, answer.at_tail, end_of_segment=False, data=answer.data, request=request
        )


def _greet(hello: Any, say: Say) -> None:
    say(wire.Hello(NEWEST, OLDEST))
    if hello.high < OLDEST or hello.low > NEWEST:
        raise ProtocolError(f"wire versions {hello.low} to {hello.high}; {OLDEST} to {NEWEST} are spoken")
