"""The common part of the conversations of both dialects: the order of requests, and the conditions of answers.

An acknowledgement leaves when its block is stored: first its events on the events topic, then its bytes in its segment, then the
reply names its level. Writers do not wait for each other, and nothing waits for a read but the next read of the same segment.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Generic

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.interface import ByteSession, Frame, Peer, Question, Status, Ticket
from headrace_common.session.ledger import Ledger
from typing_extensions import override

from headrace_segment.events import Run
from headrace_segment.questions import (
    AboutSegment,
    AppendBlock,
    LimitExceeded,
    OpenSession,
    OutcomeUnknown,
    ReadBytes,
    RepliesLeft,
    SessionLost,
)
from headrace_segment.session.fifo import Fifo
from headrace_segment.session.limits import READS, REPLIES, WAITING, WRITE_BYTES, SessionLimits
from headrace_segment.session.order import SegmentOrder
from headrace_segment.session.requests import CostlyReply, OpenQuestion, fault_of
from headrace_segment.session.writers import B, Publishing, Setup, WaitingRequest, Writer
from headrace_segment.store.outcomes import Appended, Opened, Refusal, Refused
from headrace_segment.store.records import Numbering
from headrace_segment.wire.layout import Table
from headrace_segment.wire.parser import MessageParser


class Conversation(ByteSession, Generic[B]):
    """See `headrace_common.session.interface.Session`. A dialect defines the meaning of messages, and the form of answers."""

    def __init__(
        self, peer: Peer, limits: SessionLimits, decoder: MessageParser[Any], messages: Table, numbering: Numbering
    ) -> None:
        self._peer = peer
        self._limits = limits
        self._decode = decoder
        self._messages = messages
        self._numbering = numbering
        self._writers: dict[bytes, Writer[B]] = {}
        self._orders: dict[str, SegmentOrder[B]] = {}
        self._waiting_bytes = 0
        self._numbers = itertools.count()
        self._tickets = itertools.count()
        self._publishing: Publishing[B] = Publishing(peer, limits)
        self._question_tickets = itertools.count()
        self._questions: Fifo[Question] = Fifo()
        self._asked: dict[Ticket, OpenQuestion[B]] = {}
        self._reads = 0  # without an answer
        self._leaving = False  # the transport has got a reply with bytes of a segment
        self._replies: Fifo[Any] = Fifo()
        self._abandoned = False
        self._ending = False

    # What decides that an acknowledgement may leave

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        writer = self._publishing.stored(ticket, stored, whole)
        if not whole:
            return
        while not self._abandoned and (oldest := writer.publishing.pop_whole()) is not None:
            note = oldest.note
            self._ask(OpenQuestion(note.question(next(self._question_tickets)), note.number, note.request, writer))

    @override
    def abandon(self, ticket: Ticket) -> None:
        """Stores and acknowledges nothing from here on."""
        self._abandoned = True

    @override
    def answered(self, ticket: Ticket, answer: object) -> None:
        asked = self._asked.pop(ticket, None)
        if asked is None:  # `RepliesLeft`
            return
        if isinstance(asked.question, ReadBytes):
            self._reads -= 1
            self._orders[asked.question.segment].reading = False
        if isinstance(answer, OutcomeUnknown):  # the service ends the conversation; nothing more of it is handed out
            self._abandoned = True
            return
        fault = fault_of(self._hear, asked, answer)
        for writer in self._may_go_on(asked):
            fault = fault_of(self._go_on, writer) or fault
        self._release(asked.question.segment)
        if fault is not None and not self._ending:  # the next answers mostly say the same
            self._ending = True
            raise fault

    def _hear(self, asked: OpenQuestion[B], answer: object) -> None:
        """Takes an answer. Raises `ProtocolError`; requests that wait for the answer go on all the same."""
        if asked.writer is None:
            self._segment_answered(asked, answer)
        else:
            asked.writer.under_way -= 1
            self._writer_answered(asked, asked.writer, answer)

    def _may_go_on(self, asked: OpenQuestion[B]) -> list[Writer[B]]:
        """Returns the writers that may have waited for this answer: its own; after a change of a segment, all."""
        order = self._orders.get(asked.question.segment)
        if order is not None and order.done(asked.number):
            return list(self._writers.values())
        return [] if asked.writer is None else [asked.writer]

    def _writer_answered(self, asked: OpenQuestion[B], writer: Writer[B], answer: object) -> None:
        question = asked.question
        if isinstance(answer, Opened):
            writer.opened(answer.session, answer.level, answer.era)
            self._replies.append(self._append_setup(question.segment, asked.request, writer))
        elif isinstance(answer, Appended):
            self._acknowledge(writer, answer, asked.request)
        elif isinstance(answer, LimitExceeded):
            raise ProtocolError(f"SetupAppend exceeds {answer.setting}", limit=answer.setting)
        else:
            assert isinstance(answer, Refused), answer
            self._not_done(asked, writer, answer.why)

    def _not_done(self, asked: OpenQuestion[B], writer: Writer[B], why: Refusal) -> None:
        question = asked.question
        if why is Refusal.NO_SEGMENT:
            writer.session = None
            reply = self._no_such_segment(question.segment, asked.request)
            if isinstance(question, OpenSession):
                self._replies.append(reply)
            else:
                self._say_once(reply)
        elif why is Refusal.SEALED:
            assert isinstance(question, AppendBlock)
            writer.sealed = True
            self._say_once(self._is_sealed(question.segment, asked.request, question.after))
        else:
            self._refused(asked, writer, why)

    @override
    def told(self, word: object) -> None:
        assert isinstance(word, SessionLost)
        writer = self._writers.get(word.writer)
        if writer is not None and writer.session == word.session and not self._ending:
            self._ending = True
            self._taken_over(writer)

    def _say_once(self, reply: object) -> None:
        """Sends one refusal for successive blocks that are refused."""
        if self._replies.newest != reply:
            self._replies.append(reply)

    @override
    def outgoing(self) -> bytes:
        if self._leaving:  # the transport asks again when that is written
            self._questions.append(RepliesLeft(next(self._question_tickets)))
            self._leaving = False
        pieces: list[bytes] = []
        size = 0
        while self._replies and size < WRITE_BYTES:
            reply = self._replies.popleft()
            if isinstance(reply, CostlyReply):
                self._leaving |= reply.read
                self._waiting_bytes -= reply.echoed
                reply = reply.message
            pieces.append(self._messages.encode(reply))
            size += len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    # What the dialects differ in

    @abstractmethod
    def _hand_out(self, writer: Writer[B], block: B, number: int, received_ms: int) -> None:
        """Publishes a block that has its turn, is not faulty by itself, and has a writer that is set up, unless it has its answer
        already. Raises `ProtocolError`.
        """

    @abstractmethod
    def _not_set_up(self, writer: Writer[B], block: B, number: int) -> None:
        """Answers a block that has its turn and whose writer has no session, or raises `ProtocolError`."""

    @abstractmethod
    def _segment_answered(self, asked: OpenQuestion[B], answer: object) -> None:
        """Takes the answer to a question of no writer. Raises `ProtocolError`."""

    @abstractmethod
    def _refused(self, asked: OpenQuestion[B], writer: Writer[B], why: Refusal) -> None:
        """Answers a block or a SetupAppend that is refused, or raises `ProtocolError`."""

    @abstractmethod
    def _taken_over(self, writer: Writer[B]) -> None:
        """Raises `ProtocolError`: another connection has the writer."""

    @abstractmethod
    def _acknowledge(self, writer: Writer[B], stored: Appended, request: int) -> None:
        """Acknowledges all up to a level. Successive levels of one writer make one reply."""

    @abstractmethod
    def _append_setup(self, segment: str, request: int, writer: Writer[B]) -> object:
        """Returns the reply to a SetupAppend."""

    @abstractmethod
    def _no_such_segment(self, segment: str, request: int) -> object:
        """Returns the reply for a missing segment."""

    @abstractmethod
    def _is_sealed(self, segment: str, request: int, level: int) -> object:
        """Returns the reply to a block that would have brought a level."""

    # Requests, in their order

    def _arrives(self, asked: Setup | B, now_ms: int) -> None:
        """Takes a SetupAppend or a block. Raises `ProtocolError`."""
        writer = self._writers.get(asked.writer)
        if isinstance(asked, Setup):
            self._check_name(asked.segment)
            if writer is None:
                if len(self._writers) >= self._limits.writers:
                    raise self._decode.fault(f"more than {self._limits.writers} writers on one connection")
                writer = Writer(asked.writer, asked.segment, Ledger(self._tickets))
                self._writers[asked.writer] = writer
            writer.next_segment = asked.segment
        elif writer is None:
            raise self._decode.fault("a block of a writer that is not set up")
        number = next(self._numbers)
        self._order(writer.next_segment).append(number)
        waiting = WaitingRequest(asked, writer.next_segment, number, now_ms)
        writer.waiting.append(waiting)
        self._waiting_bytes += waiting.size
        try:
            self._go_on(writer)
        except ProtocolError as error:
            raise self._decode.fault(str(error)) from None

    def _check_name(self, segment: str) -> None:
        size = len(segment.encode())
        if not 0 < size <= self._limits.segment_bytes:
            raise self._decode.fault(f"a segment's name of {size} bytes; 1 to {self._limits.segment_bytes} are allowed")

    def _order(self, segment: str) -> SegmentOrder[B]:
        if segment not in self._orders:
            self._orders[segment] = SegmentOrder()
        return self._orders[segment]

    def _go_on(self, writer: Writer[B]) -> None:
        """Handles the waiting requests that may be done now."""
        while (waiting := writer.waiting.oldest) is not None and self._has_its_turn(writer, waiting):
            writer.waiting.popleft()
            self._waiting_bytes -= waiting.size
            writer.under_way += 1
            asked = waiting.asked
            if isinstance(asked, Setup):
                writer.sets_up(asked, self._numbering.first)
                ticket = next(self._question_tickets)
                question = OpenSession(ticket, asked.segment, writer.id, self._numbering)
                self._ask(OpenQuestion(question, waiting.number, asked.request, writer))
            elif writer.session is None:
                self._not_set_up(writer, asked, waiting.number)
            else:
                self._hand_out(writer, asked, waiting.number, waiting.received_ms)

    def _has_its_turn(self, writer: Writer[B], waiting: WaitingRequest[B]) -> bool:
        if not self._orders[waiting.segment].may_append(waiting.number):
            return False
        # the level in the answer to a SetupAppend counts blocks that may still be stored
        return not writer.under_way or not (writer.session is None or isinstance(waiting.asked, Setup))

    def _publish(self, writer: Writer[B], run: Run, number: int, request: int, received_ms: int) -> None:
        """Hands out a run whose events must be stored first."""
        writer.sent = run.after
        self._publishing.add(writer, run, number, request, received_ms)

    def _answered_here(self, writer: Writer[B], number: int) -> None:
        """Ends a block that had its turn and waits for no answer."""
        writer.under_way -= 1
        if (order := self._orders.get(writer.segment)) is not None:
            order.done(number)
        self._release(writer.segment)

    def _about(self, question: AboutSegment, request: int) -> None:
        """Takes a request of no writer. Raises `ProtocolError`."""
        segment = question.segment
        self._check_name(segment)
        if isinstance(question, ReadBytes):
            if self._reads >= READS:
                raise self._decode.fault(f"more than {READS} reads without an answer")
            self._reads += 1
        self._order(segment).hold(OpenQuestion(question, next(self._numbers), request))
        self._waiting_bytes += WAITING
        self._release(segment)

    def _release(self, segment: str) -> None:
        order = self._orders.get(segment)
        if order is None:
            return
        for asked in order.released():
            self._waiting_bytes -= WAITING
            self._ask(asked)
        if not order:
            del self._orders[segment]

    def _ask(self, asked: OpenQuestion[B]) -> None:
        self._asked[asked.question.ticket] = asked
        self._questions.append(asked.question)

    # What the driver asks

    @override
    def frames(self) -> Iterator[Frame]:
        return self._publishing.frames()

    @override
    def questions(self) -> Iterator[Question]:
        return self._questions.drain()

    @override
    def eof(self) -> None:
        if self._decode.partial_bytes():
            raise self._decode.fault("the stream ends inside a message or a block")

    @override
    def status(self) -> Status:
        waiting = self._asked or self._publishing or self._waiting_bytes
        partial_bytes = self._decode.partial_bytes()
        return Status(
            partial_bytes=partial_bytes,
            waiting_bytes=self._waiting_bytes + WAITING * max(0, len(self._replies) - REPLIES),
            busy=self._decode.busy,
            idle=not (waiting or partial_bytes),
        )
