"""One client's conversation, in either dialect: the order of requests, and the conditions of answers. Pure.

An acknowledgement leaves when its block is stored: first its events on the events topic, then its bytes in its segment, then the
reply names its level. The requests of one connection about one segment are asked in the order in which they came, and the store
does what changes a segment in the order of asking; nothing waits for the answer to a read. Segments do not wait for each other.
"""

from __future__ import annotations

import itertools
import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.record.event import Envelope
from headrace_common.session.interface import ByteSession, Frame, Peer, Question, Status, Ticket
from typing_extensions import override

from headrace_segment.events import BlockFrame, Run, envelope
from headrace_segment.questions import (
    AppendBlock,
    Appended,
    BytesRead,
    Changed,
    ChangeSegment,
    LimitExceeded,
    Opened,
    OpenSession,
    OutcomeUnknown,
    ReadBytes,
    Refusal,
    Refused,
    RepliesLeft,
    SegmentDescription,
)
from headrace_segment.session.dialect import About, Block, Dialect, Request, Setup, Writer
from headrace_segment.session.limits import READS, REPLIES, WAITING, WRITE_BYTES, SessionLimits
from headrace_segment.session.original import OriginalDialect
from headrace_segment.session.today import TodayDialect
from headrace_segment.store.records import Create, Seal, Truncate
from headrace_segment.wire.codes import Kind

HELLO: Final = struct.pack(">i", Kind.HELLO)
"""The beginning of today's dialect. The original one does not have this message."""

NOT_SET_UP: Final = "a block of a writer that is not set up"

_DONE: Final[dict[type, Kind]] = {
    Create: Kind.SEGMENT_CREATED,
    Seal: Kind.SEGMENT_SEALED,
    Truncate: Kind.SEGMENT_TRUNCATED,
}
_REFUSED: Final = {
    Refusal.NO_SEGMENT: Kind.NO_SUCH_SEGMENT,
    Refusal.EXISTS: Kind.SEGMENT_ALREADY_EXISTS,
    Refusal.SEALED: Kind.SEGMENT_IS_SEALED,
    Refusal.TRUNCATED: Kind.SEGMENT_IS_TRUNCATED,
}
"""What a client is told; any other refusal ends the conversation."""


class SegmentSession(ByteSession):
    """See `headrace_common.session.interface.Session`."""

    def __init__(self, peer: Peer, limits: SessionLimits, *, may_destroy: bool = False) -> None:
        """`may_destroy`: whether the client may seal and truncate segments."""
        self._peer = peer
        self._limits = limits
        self._may_destroy = may_destroy
        self._first = b""
        self._known: Dialect | None = None
        self._writers: dict[bytes, Writer] = {}
        self._envelopes: dict[str, Envelope] = {}
        self._queues: dict[str, deque[Request]] = {}
        self._waiting_bytes = 0
        self._tickets = itertools.count()
        self._ready: list[BlockFrame] = []
        self._frames: dict[Ticket, tuple[Request, Run]] = {}  # not stored
        self._questions: list[Question] = []
        self._asked: dict[Ticket, Request] = {}
        self._reads = 0  # without an answer
        self._leaving = False  # the transport has got a reply with bytes of a segment
        self._replies: list[tuple[Any, int]] = []
        self._abandoned = False
        self._ending = False

    @property
    def _dialect(self) -> Dialect:
        assert self._known is not None
        return self._known

    # Requests

    @override
    def receive(self, data: bytes, now_ms: int) -> None:
        if self._known is None:
            self._first += data
            if len(self._first) < len(HELLO):
                return
            data, self._first = self._first, b""
            if data.startswith(HELLO):
                self._known = TodayDialect(self._limits, self._tickets, may_destroy=self._may_destroy)
            else:
                self._known = OriginalDialect(self._limits, self._tickets)
        dialect = self._dialect
        for said in dialect.decoder.receive(data):
            try:
                self._arrives(dialect.heard(said, self._reply), now_ms)
            except ProtocolError as error:
                raise dialect.decoder.fault(str(error), error.limit) from None

    def _arrives(self, asked: Setup | Block | About | None, now_ms: int) -> None:
        if isinstance(asked, About):
            self._about(asked)
        elif asked is not None:
            writer = self._writer(asked)
            cost = WAITING + (0 if isinstance(asked, Setup) else len(asked.data))
            request = Request(asked, writer.next_segment, asked.request, cost, now_ms, writer)
            writer.waiting.append(request)
            self._queue(request)
            self._go_on(writer)

    def _writer(self, asked: Setup | Block) -> Writer:
        writer = self._writers.get(asked.writer)
        if isinstance(asked, Setup):
            self._check_name(asked.segment)
            if writer is None:
                if len(self._writers) >= self._limits.writers:
                    raise ProtocolError(f"more than {self._limits.writers} writers on one connection")
                writer = self._writers[asked.writer] = Writer(asked.writer)
            writer.next_segment = asked.segment
        elif writer is None:
            raise ProtocolError(NOT_SET_UP)
        return writer

    def _about(self, asked: About) -> None:
        question = asked.question
        self._check_name(question.segment)
        if isinstance(question, ReadBytes):
            if self._reads >= READS:
                raise ProtocolError(f"more than {READS} reads without an answer")
            self._reads += 1
        self._queue(Request(asked, question.segment, asked.request, WAITING, question=question))
        self._release(question.segment)

    def _check_name(self, segment: str) -> None:
        size = len(segment.encode())
        if not 0 < size <= self._limits.segment_bytes:
            raise ProtocolError(f"a segment's name of {size} bytes; 1 to {self._limits.segment_bytes} are allowed")

    def _queue(self, request: Request) -> None:
        self._queues.setdefault(request.segment, deque()).append(request)
        self._waiting_bytes += request.cost

    def _has_its_turn(self, request: Request) -> None:
        self._waiting_bytes -= request.cost
        request.cost = 0

    def _go_on(self, writer: Writer) -> None:
        """Takes the writer's requests that wait for no answer. Raises `ProtocolError`.

        Blocks wait for that to its SetupAppend, which names the level; a SetupAppend for those to the blocks before it, since an
        acknowledgement does not name its segment.
        """
        while waiting := writer.waiting:
            if writer.pending and (not writer.is_open or isinstance(waiting[0].asked, Setup)):
                break
            request = waiting.pop(0)
            self._has_its_turn(request)
            try:
                self._take(writer, request)
            finally:
                self._release(request.segment)

    def _take(self, writer: Writer, request: Request) -> None:
        asked = request.asked
        assert not isinstance(asked, About)
        if isinstance(asked, Setup):
            numbering = self._dialect.numbering
            writer.begins(asked.segment, numbering.first, is_open=False)
            writer.pending += 1
            request.question = OpenSession(next(self._tickets), asked.segment, writer.id, numbering)
            return
        if not writer.is_open:
            raise ProtocolError(NOT_SET_UP)
        request.done = True
        run, sent = self._dialect.run(writer, asked, self._reply), writer.sent
        writer.sent = max(sent, run.after)
        if run.after <= writer.level:  # what is under way is acknowledged when it is stored
            self._acknowledge(writer, writer.level, request.number, 0)
        elif writer.sealed:
            self._refuse(Refusal.SEALED, request, run.after, once=True)
        elif run.after > sent:
            self._publish(writer, request, run)

    def _publish(self, writer: Writer, request: Request, run: Run) -> None:
        request.done = False
        writer.pending += 1
        frame = BlockFrame(run, request.received_ms, self._envelope(run.segment), self._limits.event_bytes)
        frame.ticket = next(self._tickets)
        self._frames[frame.ticket] = request, run
        self._ready.append(frame)

    def _release(self, segment: str) -> None:
        """Asks what waits for nothing before it."""
        queue = self._queues.get(segment)
        while queue and (queue[0].done or queue[0].question is not None):
            request = queue.popleft()
            if request.question is not None:
                self._has_its_turn(request)
                self._asked[request.question.ticket] = request
                self._questions.append(request.question)
        if not queue:
            self._queues.pop(segment, None)

    def _envelope(self, segment: str) -> Envelope:
        if segment not in self._envelopes:
            if len(self._envelopes) >= self._limits.writers:
                self._envelopes.clear()
            self._envelopes[segment] = envelope(self._peer, segment)
        return self._envelopes[segment]

    # Answers

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        if not whole:
            return
        request, run = self._frames.pop(ticket)
        if not self._abandoned:
            request.question = AppendBlock(
                next(self._tickets), run.segment, run.writer, run.before, run.after, run.data
            )
            self._release(request.segment)

    @override
    def abandon(self, ticket: Ticket) -> None:
        """Stores and acknowledges nothing from here on."""
        self._abandoned = True
        del self._frames[ticket]

    @override
    def answered(self, ticket: Ticket, answer: object) -> None:
        request = self._asked.pop(ticket, None)
        if request is None:  # `RepliesLeft`
            return
        if isinstance(request.question, ReadBytes):
            self._reads -= 1
        if isinstance(answer, OutcomeUnknown):  # the service ends the conversation; nothing more of it is handed out
            self._abandoned = True
            return
        try:
            self._first_fault(lambda: self._hear(request, answer))
        finally:  # what has come behind it is done all the same
            if (writer := request.writer) is not None:
                writer.pending -= 1
                self._first_fault(lambda: self._go_on(writer))

    def _first_fault(self, work: Callable[[], None]) -> None:
        """Raises the first `ProtocolError` of all answers: those behind it mostly say the same."""
        try:
            work()
        except ProtocolError:
            if not self._ending:
                self._ending = True
                raise

    def _hear(self, request: Request, answer: object) -> None:
        question, writer = request.question, request.writer
        assert question is not None
        if isinstance(answer, LimitExceeded):
            raise ProtocolError(f"{type(question).__name__} exceeds {answer.setting}", limit=answer.setting)
        if isinstance(answer, Opened):
            assert writer is not None
            writer.begins(question.segment, answer.level, is_open=True)
            self._say(Kind.APPEND_SETUP, request, writer=writer.id, level=answer.level)
        elif isinstance(answer, Appended):
            assert writer is not None
            self._acknowledge(writer, answer.level, request.number, answer.length)
        elif isinstance(answer, Refused):
            self._hear_refusal(request, answer)
        elif isinstance(answer, Changed):
            assert isinstance(question, ChangeSegment)
            self._say(_DONE[type(question.change)], request)
        elif isinstance(answer, SegmentDescription):
            self._say(
                Kind.SEGMENT_INFO, request, exists=True, sealed=answer.sealed, deleted=False, modified=answer.modified,
                length=answer.length, start=answer.start,
            )  # fmt: skip
        else:
            assert isinstance(answer, BytesRead)
            assert isinstance(question, ReadBytes)
            self._reply(self._dialect.read(question, request.number, answer))

    def _hear_refusal(self, request: Request, answer: Refused) -> None:
        question, writer = request.question, request.writer
        if writer is not None and answer.why is Refusal.SEALED:
            writer.sealed = True
        offset = question.offset if isinstance(question, ReadBytes) else -1
        if isinstance(question, AppendBlock) and answer.why is Refusal.SEALED:
            offset = question.after
        elif answer.why is Refusal.TRUNCATED and isinstance(question, ChangeSegment):
            assert isinstance(question.change, Truncate)
            offset = question.change.offset
        self._refuse(answer.why, request, offset, answer.start, once=isinstance(question, AppendBlock))

    def _refuse(self, why: Refusal, request: Request, offset: int = -1, start: int = 0, *, once: bool) -> None:
        """`once`: one reply for successive blocks that are refused."""
        if why not in _REFUSED:
            raise ProtocolError(f"an append is refused: {why.value}")
        reply = self._made(_REFUSED[why], request, start=start, offset=offset)
        if not once or not self._replies or self._replies[-1][0] != reply:
            self._reply(reply)

    def _acknowledge(self, writer: Writer, level: int, request: int, length: int) -> None:
        """Successive levels of one writer make one reply."""
        messages, previous, writer.level = self._dialect.messages, writer.level, level
        last = self._replies[-1][0] if self._replies else None
        if last is not None and messages.kind(last) == Kind.DATA_APPENDED and last.writer == writer.id:
            previous = getattr(last, "previous", previous)
            self._replies.pop()
        self._reply(
            messages.make(
                Kind.DATA_APPENDED, writer=writer.id, level=level, previous=previous, request=request, length=length
            )
        )

    def _say(self, kind: Kind, request: Request, **fields: Any) -> None:
        self._reply(self._made(kind, request, **fields))

    def _made(self, kind: Kind, request: Request, **fields: Any) -> Any:
        return self._dialect.messages.make(kind, segment=request.segment, request=request.number, **fields)

    def _reply(self, message: Any) -> None:
        """A KeepAlive costs what it echoes until it leaves; what is read of segments, the service counts."""
        echoes = self._dialect.messages.kind(message) == Kind.KEEP_ALIVE
        cost = WAITING + len(getattr(message, "data", b"")) if echoes else 0
        self._waiting_bytes += cost
        self._replies.append((message, cost))

    # What the driver asks

    @override
    def outgoing(self) -> bytes:
        if self._leaving:  # the transport asks again when that is written
            self._questions.append(RepliesLeft(next(self._tickets)))
            self._leaving = False
        pieces: list[bytes] = []
        size = 0
        for message, cost in self._replies:
            if size >= WRITE_BYTES:
                break
            self._leaving |= self._dialect.messages.kind(message) == Kind.SEGMENT_READ and bool(message.data)
            self._waiting_bytes -= cost
            pieces.append(self._dialect.messages.encode(message))
            size += len(pieces[-1])
        del self._replies[: len(pieces)]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @override
    def frames(self) -> Iterator[Frame]:
        while self._ready:
            yield self._ready.pop(0)

    @override
    def questions(self) -> Iterator[Question]:
        while self._questions:
            yield self._questions.pop(0)

    @override
    def eof(self) -> None:
        if self._first:
            raise ProtocolError("the stream ends inside its first message", offset=0, sample=self._first)
        if self._known is not None and self._known.decoder.partial_bytes():
            raise self._known.decoder.fault("the stream ends inside a message or a block")

    @override
    def status(self) -> Status:
        decoder = None if self._known is None else self._known.decoder
        partial_bytes = len(self._first) if decoder is None else decoder.partial_bytes()
        return Status(
            partial_bytes=partial_bytes,
            waiting_bytes=self._waiting_bytes + WAITING * max(0, len(self._replies) - REPLIES),
            busy=decoder is not None and decoder.busy,
            idle=not (self._asked or self._frames or self._waiting_bytes or partial_bytes),
        )
