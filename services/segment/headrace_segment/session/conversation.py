"""One client's conversation, in either dialect: what it says, and what is answered. Pure.

=====================  =====================================================================================================
the client says        we answer
=====================  =====================================================================================================
Hello                  Hello with the wire versions that we speak; if they are not the client's, the conversation ends
SetupAppend            AppendSetup with the writer's level, when its session is open; NoSuchSegment
a block                DataAppended, when the block is stored: first its events on the events topic, then its bytes in its
                       segment. A block at or below the level is acknowledged again and stored once; in today's dialect it
                       gets InvalidEventNumber, and the conversation ends
ReadSegment            SegmentRead, SegmentIsTruncated, NoSuchSegment
GetStreamSegmentInfo   StreamSegmentInfo, NoSuchSegment
CreateSegment          SegmentCreated, SegmentAlreadyExists
KeepAlive              the same, at once
all else               OperationUnsupported; in the original dialect the conversation ends
=====================  =====================================================================================================

A block of a writer that is not set up, or that does not begin at its writer's level, ends the conversation, as a connection that
takes the writer over does: the client comes back, and resumes from its level. The requests of one connection are asked in the
order in which they came, and the store does what changes a segment in the order of asking; nothing waits for a read's answer.

Sources: `AppendProcessor`, `PravegaRequestProcessor` and `SegmentOutputStreamImpl` of Pravega 0.13.
"""

from __future__ import annotations

import itertools
import struct
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.interface import ByteSession, Frame, Peer, Question, Status, Ticket
from typing_extensions import override

from headrace_segment.events import BlockFrame, envelope
from headrace_segment.questions import (
    AppendBlock,
    Appended,
    BytesRead,
    Created,
    CreateSegment,
    DescribeSegment,
    Opened,
    OpenSession,
    OutcomeUnknown,
    ReadBytes,
    Refusal,
    Refused,
    RepliesLeft,
)
from headrace_segment.session.requests import ORIGINAL, TODAY, WAITING, Asks, Dialect, Request, Writer
from headrace_segment.settings import SegmentSection
from headrace_segment.store import records
from headrace_segment.store.fold import Segment
from headrace_segment.wire import messages as today
from headrace_segment.wire import original
from headrace_segment.wire.codes import Kind
from headrace_segment.wire.parser import Block, MessageParser
from headrace_segment.wire.today import NEWEST, OLDEST, Unsupported

HELLO: Final = struct.pack(">i", Kind.HELLO)
"""The beginning of today's dialect. The original one does not have this message."""

WRITE_BYTES: Final = 64 << 10
"""Replies are handed out in pieces of about this size, or one by one if they are larger: what the transport holds of a
client that does not read is at most one reply more than its own buffer."""

REPLIES: Final = 2048
"""Replies that wait to leave and cost nothing, so that acknowledgements do not trouble the budgets; each further one is a request
that waits."""

READS: Final = 1024
"""Reads of one connection that have no answer yet."""

_REFUSED: Final = {
    Refusal.NO_SEGMENT: Kind.NO_SUCH_SEGMENT,
    Refusal.EXISTS: Kind.SEGMENT_ALREADY_EXISTS,
    Refusal.TRUNCATED: Kind.SEGMENT_IS_TRUNCATED,
}
"""What a client is told; any other refusal ends the conversation."""


class SegmentSession(ByteSession):
    """See `headrace_common.session.interface.Session`."""

    def __init__(self, peer: Peer, limits: LimitSettings, section: SegmentSection) -> None:
        self._peer = peer
        self._limits = limits
        self._section = section
        self._first = b""
        self._dialect: Dialect = ORIGINAL
        self._decoder: MessageParser[Any] | None = None  # until the dialect is known
        self._writers: dict[bytes, Writer] = {}
        self._waiting: deque[Request] = deque()  # for their turn
        self._under_way: deque[Request] = deque()  # to be asked
        self._waiting_bytes = 0
        self._tickets = itertools.count()
        self._ready: list[BlockFrame] = []
        self._frames: dict[Ticket, tuple[Request, Writer, Block]] = {}  # not stored
        self._questions: list[Question] = []
        self._asked: dict[Ticket, Request] = {}
        self._reads = 0  # without an answer
        self._leaving = False  # the transport has got a reply with bytes of a segment
        self._replies: list[tuple[Any, int]] = []
        self._abandoned = False
        self._ending = False

    # Requests

    @override
    def receive(self, data: bytes, now_ms: int) -> None:
        if self._decoder is None:
            self._first += data
            if len(self._first) < len(HELLO):
                return
            data, self._first = self._first, b""
            self._dialect = TODAY if data.startswith(HELLO) else ORIGINAL
            self._decoder = self._dialect.decoder(self._limits.frame_bytes)
        for said in self._decoder.receive(data):
            try:
                asked = said if isinstance(said, Block) else self._heard(said)
                if asked is not None:
                    request = Request(asked, getattr(said, "request", 0), now_ms)
                    self._waiting.append(request)
                    self._waiting_bytes += request.cost
                    self._go_on()
            except ProtocolError as error:
                raise self._decoder.fault(str(error), error.limit) from None

    def _heard(self, said: Any) -> Asks | None:
        """Returns what a message asks for; None if that is done."""
        if isinstance(said, Unsupported):
            self._reply(today.OperationUnsupported(said.request, f"type {said.kind}"))
        elif isinstance(said, today.KeepAlive | original.KeepAlive):
            self._reply(said)
        elif isinstance(said, today.Hello):
            self._reply(today.Hello(NEWEST, OLDEST))
            if said.high < OLDEST or said.low > NEWEST:
                raise ProtocolError(f"wire versions {said.low} to {said.high}; {OLDEST} to {NEWEST} are spoken")
        else:
            return self._question(said, next(self._tickets))
        return None

    def _question(self, said: Any, ticket: Ticket) -> Asks:
        if isinstance(said, today.SetupAppend | original.SetupAppend):
            return OpenSession(ticket, said.segment, said.writer, self._dialect.numbering)
        if isinstance(said, today.ReadSegment | original.ReadSegment):
            length = min(max(said.length, self._dialect.least), self._section.reply_bytes)
            return ReadBytes(ticket, said.segment, said.offset, length)
        return (CreateSegment if isinstance(said, today.CreateSegment) else DescribeSegment)(ticket, said.segment)

    def _go_on(self) -> None:
        """Takes requests in their order, as long as they wait for no answer. Raises `ProtocolError`.

        A block waits for the answer to its writer's SetupAppend, which names the level; a SetupAppend for those to its writer's
        requests before it, since an acknowledgement does not name its segment.
        """
        while self._waiting:
            request = self._waiting[0]
            asked = request.asked
            writer = self._writers.get(asked.writer) if isinstance(asked, OpenSession | Block) else None
            if writer is not None and writer.pending and (not writer.is_open or isinstance(asked, OpenSession)):
                return
            self._waiting.popleft()
            self._waiting_bytes -= request.cost
            if isinstance(asked, Block):
                self._append(request, asked, writer)
            else:
                self._ask(request, asked)

    def _ask(self, request: Request, asked: Asks) -> None:
        size = len(asked.segment.encode())
        if not 0 < size <= self._section.name_bytes:
            raise ProtocolError(f"a segment's name of {size} bytes; 1 to {self._section.name_bytes} are allowed")
        if isinstance(asked, OpenSession):
            if asked.writer not in self._writers and len(self._writers) >= self._section.connection_writers:
                raise ProtocolError(f"more than {self._section.connection_writers} writers on one connection")
            first, about = asked.numbering.first, envelope(self._peer, asked.segment)
            request.writer = self._writers[asked.writer] = Writer(asked.writer, asked.segment, about, first, first)
        elif isinstance(asked, ReadBytes):
            if self._reads >= READS:
                raise ProtocolError(f"more than {READS} reads without an answer")
            self._reads += 1
        request.question = asked
        self._under_way.append(request)
        self._release()

    def _append(self, request: Request, block: Block, writer: Writer | None) -> None:
        if writer is None or not writer.is_open:
            raise ProtocolError("a block of a writer that is not set up")
        if block.before is None:
            if block.after <= writer.sent:
                self._reply(today.InvalidEventNumber(writer.id, block.request, "", block.after))
                raise ProtocolError(f"event number {block.after} does not rise above {writer.sent}")
            block.before = writer.sent
        elif block.before != writer.sent < block.after:
            raise ProtocolError(f"a block from {block.before} to {block.after}, but its writer is at {writer.sent}")
        if block.after <= writer.level:
            self._acknowledge(writer, writer.level, request.number, 0)
        elif block.after > writer.sent:  # else it is acknowledged when what is under way is stored
            writer.sent = block.after
            writer.pending += 1
            request.writer = writer
            self._under_way.append(request)
            frame = BlockFrame(
                writer.segment, block, self._dialect.numbering, request.received_ms, writer.envelope,
                self._limits.event_bytes,
            )  # fmt: skip
            frame.ticket = next(self._tickets)
            self._frames[frame.ticket] = request, writer, block
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
        request, writer, block = self._frames.pop(ticket)
        if not self._abandoned:
            assert block.before is not None
            record = records.Block(writer.id, block.before, block.after, block.data)
            request.question = AppendBlock(next(self._tickets), writer.segment, record)
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
        question, writer = request.question, request.writer
        assert question is not None
        if isinstance(answer, Appended):
            assert writer is not None
            self._acknowledge(writer, answer.level, request.number, answer.length)
        elif isinstance(answer, Opened):
            assert writer is not None
            writer.level = writer.sent = answer.level
            writer.is_open = True
            self._say(Kind.APPEND_SETUP, request, writer=writer.id, level=answer.level)
        elif isinstance(answer, BytesRead):
            assert isinstance(question, ReadBytes)
            self._say(
                Kind.SEGMENT_READ, request, offset=question.offset, at_tail=answer.at_tail, end_of_segment=False,
                flags=original.AT_TAIL * answer.at_tail, data=answer.data,
            )  # fmt: skip
        elif isinstance(answer, Segment):
            self._say(
                Kind.SEGMENT_INFO, request, exists=True, sealed=False, deleted=False, modified=answer.modified,
                length=answer.length, start=answer.start,
            )  # fmt: skip
        elif isinstance(answer, Created):
            self._say(Kind.SEGMENT_CREATED, request)
        else:
            assert isinstance(answer, Refused)
            if answer.why in (Refusal.SEGMENTS, Refusal.WRITERS):
                raise ProtocolError(f"{type(question).__name__} exceeds {answer.why.value}", limit=answer.why.value)
            if answer.why not in _REFUSED:
                raise ProtocolError(f"an append is refused: {answer.why.value}")
            offset = question.offset if isinstance(question, ReadBytes) else -1
            self._say(_REFUSED[answer.why], request, start=answer.start, offset=offset)

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
        assert request.question is not None
        about = {"segment": request.question.segment, "request": request.number}
        self._reply(self._dialect.messages.make(kind, **about, **fields))

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
        if self._decoder is not None and self._decoder.partial_bytes():
            raise self._decoder.fault("the stream ends inside a message or a block")

    @override
    def status(self) -> Status:
        decoder = self._decoder
        partial_bytes = len(self._first) if decoder is None else decoder.partial_bytes()
        return Status(
            partial_bytes=partial_bytes,
            waiting_bytes=self._waiting_bytes + WAITING * max(0, len(self._replies) - REPLIES),
            busy=decoder is not None and decoder.busy,
        )
