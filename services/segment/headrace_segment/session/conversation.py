"""One client's conversation, in either dialect: the order of requests, and the conditions of answers. Pure.

An acknowledgement leaves when its block is stored: first its events on the events topic, then its bytes in its segment, then the
reply names its level. The requests of one connection are asked in the order in which they came, and the store does what changes a
segment in the order of asking; nothing waits for the answer to a read.
"""

from __future__ import annotations

import itertools
import struct
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.interface import ByteSession, Frame, Peer, Question, Status, Ticket
from typing_extensions import override

from headrace_segment.events import BlockFrame, Run, envelope
from headrace_segment.questions import (
    AboutSegment,
    AppendBlock,
    Appended,
    BytesRead,
    Created,
    Opened,
    OpenSession,
    OutcomeUnknown,
    ReadBytes,
    Refusal,
    Refused,
    RepliesLeft,
)
from headrace_segment.session.dialect import Block, Dialect, Request, Setup, Writer
from headrace_segment.session.limits import READS, REPLIES, WAITING, WRITE_BYTES, SessionLimits
from headrace_segment.session.original import OriginalDialect
from headrace_segment.session.today import TodayDialect
from headrace_segment.store.state import Segment
from headrace_segment.wire.codes import Kind

HELLO: Final = struct.pack(">i", Kind.HELLO)
"""The beginning of today's dialect. The original one does not have this message."""

_REFUSED: Final = {
    Refusal.NO_SEGMENT: Kind.NO_SUCH_SEGMENT,
    Refusal.EXISTS: Kind.SEGMENT_ALREADY_EXISTS,
    Refusal.TRUNCATED: Kind.SEGMENT_IS_TRUNCATED,
}
"""What a client is told; any other refusal ends the conversation."""


class SegmentSession(ByteSession):
    """See `headrace_common.session.interface.Session`."""

    def __init__(self, peer: Peer, limits: SessionLimits) -> None:
        self._peer = peer
        self._limits = limits
        self._first = b""
        self._known: Dialect | None = None
        self._writers: dict[bytes, Writer] = {}
        self._waiting: deque[Request] = deque()  # for their turn
        self._under_way: deque[Request] = deque()  # to be asked
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
                self._known = TodayDialect(self._limits, self._tickets)
            else:
                self._known = OriginalDialect(self._limits, self._tickets)
        dialect = self._dialect
        for said in dialect.decoder.receive(data):
            try:
                if (request := dialect.heard(said, self._reply)) is not None:
                    request.received_ms = now_ms
                    self._waiting.append(request)
                    self._waiting_bytes += request.cost
                    self._go_on()
            except ProtocolError as error:
                raise dialect.decoder.fault(str(error), error.limit) from None

    def _go_on(self) -> None:
        """Takes requests in their order, as long as they wait for no answer. Raises `ProtocolError`.

        A block waits for the answer to its writer's SetupAppend, which names the level; a SetupAppend for those to its writer's
        requests before it, since an acknowledgement does not name its segment.
        """
        while self._waiting:
            asked = self._waiting[0].asked
            writer = self._writers.get(asked.writer) if isinstance(asked, Setup | Block) else None
            if writer is not None and writer.pending and (not writer.is_open or isinstance(asked, Setup)):
                return
            request = self._waiting.popleft()
            self._waiting_bytes -= request.cost
            if isinstance(asked, Setup):
                self._set_up(request, asked, writer)
            elif isinstance(asked, Block):
                self._append(request, asked, writer)
            else:
                self._ask(request, asked)

    def _ask(self, request: Request, question: OpenSession | AppendBlock | AboutSegment) -> None:
        self._check_name(question.segment)
        if isinstance(question, ReadBytes):
            if self._reads >= READS:
                raise ProtocolError(f"more than {READS} reads without an answer")
            self._reads += 1
        request.question = question
        self._under_way.append(request)
        self._release()

    def _check_name(self, segment: str) -> None:
        size = len(segment.encode())
        if not 0 < size <= self._limits.segment_bytes:
            raise ProtocolError(f"a segment's name of {size} bytes; 1 to {self._limits.segment_bytes} are allowed")

    def _set_up(self, request: Request, asked: Setup, writer: Writer | None) -> None:
        if writer is None and len(self._writers) >= self._limits.writers:
            raise ProtocolError(f"more than {self._limits.writers} writers on one connection")
        numbering, segment = self._dialect.numbering, asked.segment
        about = envelope(self._peer, segment)
        request.writer = Writer(asked.writer, segment, about, numbering.first, numbering.first)
        self._writers[asked.writer] = request.writer
        self._ask(request, OpenSession(next(self._tickets), segment, asked.writer, numbering))

    def _append(self, request: Request, block: Block, writer: Writer | None) -> None:
        if writer is None or not writer.is_open:
            raise ProtocolError("a block of a writer that is not set up")
        run = self._dialect.run(writer, block, self._reply)
        if run.after <= writer.level:
            self._acknowledge(writer, writer.level, request.number, 0)
        elif run.after > writer.sent:  # else it is acknowledged when what is under way is stored
            writer.sent = run.after
            writer.pending += 1
            request.writer = writer
            self._under_way.append(request)
            frame = BlockFrame(run, request.received_ms, writer.envelope, self._limits.event_bytes)
            frame.ticket = next(self._tickets)
            self._frames[frame.ticket] = request, run
            self._ready.append(frame)

    def _release(self) -> None:
        """Asks what waits for nothing before it."""
        while self._under_way and (question := self._under_way[0].question) is not None:
            self._asked[question.ticket] = self._under_way.popleft()
            self._questions.append(question)

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
            self._release()

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
        if request.writer is not None:
            request.writer.pending -= 1
        try:
            self._hear(request, answer)
            self._go_on()
        except ProtocolError:  # those of the answers behind it mostly say the same
            self._waiting_bytes -= sum(each.cost for each in self._waiting)
            self._waiting.clear()
            if not self._ending:
                self._ending = True
                raise

    def _hear(self, request: Request, answer: object) -> None:
        question, writer, number = request.question, request.writer, request.number
        assert question is not None
        if isinstance(answer, Opened):
            assert writer is not None
            writer.level = writer.sent = answer.level
            writer.is_open = True
            self._say(Kind.APPEND_SETUP, question.segment, number, writer=writer.id, level=answer.level)
        elif isinstance(answer, Appended):
            assert writer is not None
            self._acknowledge(writer, answer.level, number, answer.length)
        elif isinstance(answer, Refused):
            if answer.why in (Refusal.SEGMENTS, Refusal.WRITERS):
                raise ProtocolError(f"{type(question).__name__} exceeds {answer.why.value}", limit=answer.why.value)
            if answer.why not in _REFUSED:
                raise ProtocolError(f"an append is refused: {answer.why.value}")
            offset = question.offset if isinstance(question, ReadBytes) else -1
            self._say(_REFUSED[answer.why], question.segment, number, start=answer.start, offset=offset)
        elif isinstance(answer, Created):
            self._say(Kind.SEGMENT_CREATED, question.segment, number)
        elif isinstance(answer, Segment):
            self._say(
                Kind.SEGMENT_INFO, question.segment, number, exists=True, sealed=False, deleted=False,
                modified=answer.modified, length=answer.length, start=answer.start,
            )  # fmt: skip
        else:
            assert isinstance(answer, BytesRead)
            assert isinstance(question, ReadBytes)
            self._reply(self._dialect.read(question, number, answer))

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

    def _say(self, kind: Kind, segment: str, number: int, **fields: Any) -> None:
        self._reply(self._dialect.messages.make(kind, segment=segment, request=number, **fields))

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
        )
