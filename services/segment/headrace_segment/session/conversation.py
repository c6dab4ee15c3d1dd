"""One client's conversation, in either dialect: what it says, and what is answered. Pure.

=====================  =====================================================================================================
the client says        we answer
=====================  =====================================================================================================
Hello                  Hello with the wire versions that we speak; if they are not the client's, the conversation ends
SetupAppend            AppendSetup with the writer's level, when its session is open; NoSuchSegment
a block                DataAppended, when the block is stored: first its events on the events topic, then its bytes in its
                       segment. A block at or below the level is acknowledged again and stored once; in today's dialect the
                       conversation ends
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
from dataclasses import dataclass
from typing import Any, Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import LimitSettings
from headrace_common.record.event import Envelope
from headrace_common.session.interface import ByteSession, Frame, Peer, Status, Ticket
from typing_extensions import override

from headrace_segment import questions as ask
from headrace_segment.events import BlockFrame, envelope
from headrace_segment.settings import SegmentSection
from headrace_segment.store import records
from headrace_segment.store.fold import Segment
from headrace_segment.store.records import Numbering
from headrace_segment.wire import original, today
from headrace_segment.wire.codes import Kind
from headrace_segment.wire.layout import Table
from headrace_segment.wire.original import OriginalDecoder
from headrace_segment.wire.parser import Block, MessageParser
from headrace_segment.wire.today import NEWEST, OLDEST, TodayDecoder, Unsupported

HELLO: Final = struct.pack(">i", Kind.HELLO)
"""The beginning of today's dialect. The original one does not have this message."""

WRITE_BYTES: Final = 64 << 10
"""Replies are handed out in pieces of about this size, or one by one if they are larger: what the transport holds of a
client that does not read is at most one reply more than its own buffer."""

WAITING: Final = 256
"""Bytes that a request costs, beyond its own, while it waits for those before it; and a reply while it waits to leave."""

REPLIES: Final = 2048 * WAITING
"""Bytes of replies that cost nothing, so that acknowledgements do not trouble the budgets."""

READS: Final = 1024
"""Reads of one connection that have no answer yet."""

_REFUSED: Final = {
    ask.Refusal.NO_SEGMENT: Kind.NO_SUCH_SEGMENT,
    ask.Refusal.EXISTS: Kind.SEGMENT_ALREADY_EXISTS,
    ask.Refusal.TRUNCATED: Kind.SEGMENT_IS_TRUNCATED,
}
"""What a client is told; any other refusal ends the conversation."""

Asks = ask.OpenSession | ask.ReadBytes | ask.CreateSegment | ask.DescribeSegment


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a client speaks. `least`: bytes that a reader gets even if it asks for less, if they are there."""

    decoder: type[MessageParser[Any]]
    messages: Table
    numbering: Numbering
    least: int


ORIGINAL: Final = Dialect(OriginalDecoder, original.MESSAGES, Numbering.BYTES, 0)
TODAY: Final = Dialect(TodayDecoder, today.MESSAGES, Numbering.EVENTS, 8)


@dataclass(slots=True, eq=False)  # not frozen: one for each block
class Request:
    """A request without an answer. `number`: the client's own, if its dialect has one. `question`: None until it may be asked."""

    asked: Asks | Block
    number: int
    received_ms: int
    cost: int
    writer: Writer | None = None
    question: Asks | ask.AppendBlock | None = None


@dataclass(slots=True, eq=False)
class Writer:
    """A writer on this connection. `level`: acknowledged; `sent`: handed out; `pending`: requests without an answer."""

    id: bytes
    segment: str
    envelope: Envelope
    """Of its events."""
    level: int
    sent: int
    pending: int = 1
    is_open: bool = False


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
        self._ready: list[Frame] = []
        self._frames: dict[Ticket, tuple[Request, ask.AppendBlock]] = {}  # not stored
        self._questions: list[object] = []
        self._asked: dict[Ticket, Request] = {}
        self._reads = 0  # without an answer
        self._leaving = False  # the transport has got a reply with bytes of a segment
        self._replies: deque[Any] = deque()
        self._reply_bytes = 0
        self._unknown = False
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
                    cost = WAITING + len(getattr(asked, "data", b""))
                    self._waiting.append(Request(asked, getattr(said, "request", 0), now_ms, cost))
                    self._waiting_bytes += cost
                    self._go_on()
            except ProtocolError as error:
                raise self._decoder.fault(str(error), error.limit) from None

    def _heard(self, said: Any) -> Asks | None:
        """Returns what a message asks for; None if that is done."""
        ticket = next(self._tickets)
        if isinstance(said, today.SetupAppend | original.SetupAppend):
            return ask.OpenSession(ticket, said.segment, said.writer, self._dialect.numbering)
        if isinstance(said, today.ReadSegment | original.ReadSegment):
            length = min(max(said.length, self._dialect.least), self._section.reply_bytes)
            return ask.ReadBytes(ticket, said.segment, said.offset, length)
        if isinstance(said, today.CreateSegment):
            return ask.CreateSegment(ticket, said.segment)
        if isinstance(said, today.GetSegmentInfo):
            return ask.DescribeSegment(ticket, said.segment)
        if isinstance(said, Unsupported):
            self._reply(today.OperationUnsupported(said.request, f"type {said.kind}"))
        elif isinstance(said, today.Hello):
            self._reply(today.Hello(NEWEST, OLDEST))
            if said.high < OLDEST or said.low > NEWEST:
                raise ProtocolError(f"wire versions {said.low} to {said.high}; {OLDEST} to {NEWEST} are spoken")
        else:
            self._reply(said)  # a KeepAlive
        return None

    def _go_on(self) -> None:
        """Takes requests in their order, as long as they wait for no answer. Raises `ProtocolError`.

        A block waits for the answer to its writer's SetupAppend, which names the level; a SetupAppend for those to its writer's
        requests before it, since an acknowledgement does not name its segment.
        """
        while self._waiting:
            request = self._waiting[0]
            asked = request.asked
            writer = self._writers.get(asked.writer) if isinstance(asked, ask.OpenSession | Block) else None
            if writer is not None and writer.pending and (not writer.is_open or isinstance(asked, ask.OpenSession)):
                return
            self._waiting.popleft()
            if isinstance(asked, Block):
                self._append(request, asked, writer)
            else:
                self._ask(request, asked)

    def _ask(self, request: Request, asked: Asks) -> None:
        size = len(asked.segment.encode())
        if not 0 < size <= self._section.name_bytes:
            raise ProtocolError(f"a segment's name of {size} bytes; 1 to {self._section.name_bytes} are allowed")
        if isinstance(asked, ask.OpenSession):
            if asked.writer not in self._writers and len(self._writers) >= self._section.connection_writers:
                raise ProtocolError(f"more than {self._section.connection_writers} writers on one connection")
            first, about = asked.numbering.first, envelope(self._peer, asked.segment)
            request.writer = self._writers[asked.writer] = Writer(asked.writer, asked.segment, about, first, first)
        elif isinstance(asked, ask.ReadBytes):
            if self._reads >= READS:
                raise ProtocolError(f"more than {READS} reads without an answer")
            self._reads += 1
        request.question = asked
        self._under_way.append(request)
        self._release()

    def _append(self, request: Request, block: Block, writer: Writer | None) -> None:
        self._waiting_bytes -= request.cost
        if writer is None or not writer.is_open:
            raise ProtocolError("a block of a writer that is not set up")
        if block.before is None:
            if block.after <= writer.sent:
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
            record = records.Block(writer.id, block.before, block.after, block.data)
            self._frames[frame.ticket] = request, ask.AppendBlock(next(self._tickets), writer.segment, record)
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
        request, question = self._frames.pop(ticket)
        if not self._unknown:
            self._waiting_bytes += request.cost
            request.question = question
            self._release()

    @override
    def answered(self, ticket: Ticket, answer: object) -> None:
        request = self._asked.pop(ticket, None)
        if request is None:  # `RepliesLeft`
            return
        self._waiting_bytes -= request.cost
        if isinstance(request.question, ask.ReadBytes):
            self._reads -= 1
        if isinstance(answer, ask.OutcomeUnknown):  # the service ends the conversation: nothing more is handed out
            self._unknown = True
            return
        if request.writer is not None:
            request.writer.pending -= 1
        try:
            self._hear(request, answer)
            self._go_on()
        except ProtocolError:  # those of the answers behind it mostly say the same
            self._waiting_bytes -= sum(request.cost for request in self._waiting)
            self._waiting.clear()
            if not self._ending:
                self._ending = True
                raise

    def _hear(self, request: Request, answer: object) -> None:
        question, writer = request.question, request.writer
        assert question is not None
        if isinstance(answer, ask.Appended):
            assert writer is not None
            self._acknowledge(writer, answer.level, request.number, answer.length)
        elif isinstance(answer, ask.Opened):
            assert writer is not None
            writer.level = writer.sent = answer.level
            writer.is_open = True
            self._say(Kind.APPEND_SETUP, request, writer=writer.id, level=answer.level)
        elif isinstance(answer, ask.BytesRead):
            assert isinstance(question, ask.ReadBytes)
            self._say(
                Kind.SEGMENT_READ, request, offset=question.offset, at_tail=answer.at_tail, end_of_segment=False,
                flags=original.AT_TAIL * answer.at_tail, data=answer.data,
            )  # fmt: skip
        elif isinstance(answer, Segment):
            self._say(
                Kind.SEGMENT_INFO, request, exists=True, sealed=False, deleted=False, modified=answer.modified,
                length=answer.length, start=answer.start,
            )  # fmt: skip
        elif isinstance(answer, ask.Created):
            self._say(Kind.SEGMENT_CREATED, request)
        else:
            assert isinstance(answer, ask.Refused)
            if answer.why in (ask.Refusal.SEGMENTS, ask.Refusal.WRITERS):
                raise ProtocolError(f"{type(question).__name__} exceeds {answer.why.value}", limit=answer.why.value)
            if answer.why not in _REFUSED:
                raise ProtocolError(f"an append is refused: {answer.why.value}")
            offset = question.offset if isinstance(question, ask.ReadBytes) else -1
            self._say(_REFUSED[answer.why], request, start=answer.start, offset=offset)

    def _acknowledge(self, writer: Writer, level: int, request: int, length: int) -> None:
        """Successive levels of one writer make one reply."""
        messages, previous, writer.level = self._dialect.messages, writer.level, level
        last = self._replies[-1] if self._replies else None
        if last is not None and messages.kind(last) == Kind.DATA_APPENDED and last.writer == writer.id:
            previous = getattr(last, "previous", previous)
            self._reply_bytes -= WAITING
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
        self._reply_bytes += _cost(message)
        self._replies.append(message)

    # What the driver asks

    @override
    def outgoing(self) -> bytes:
        if self._leaving:  # the transport asks again when that is written
            self._questions.append(ask.RepliesLeft(next(self._tickets)))
            self._leaving = False
        pieces: list[bytes] = []
        size = 0
        while self._replies and size < WRITE_BYTES:
            message = self._replies.popleft()
            self._leaving |= isinstance(message, today.SegmentRead | original.SegmentRead) and bool(message.data)
            self._reply_bytes -= _cost(message)
            pieces.append(self._dialect.messages.encode(message))
            size += len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @override
    def questions(self) -> Iterator[Any]:
        while self._questions:
            yield self._questions.pop(0)

    @override
    def eof(self) -> None:
        if self._first:
            raise ProtocolError("the stream ends inside its first message", offset=0, sample=self._first)
        super().eof()

    @override
    def status(self) -> Status:
        decoder = self._decoder
        partial_bytes = len(self._first) if decoder is None else decoder.partial_bytes()
        return Status(
            partial_bytes=partial_bytes,
            waiting_bytes=self._waiting_bytes + max(0, self._reply_bytes - REPLIES),
            busy=decoder is not None and decoder.busy,
        )


def _cost(reply: Any) -> int:
    """Returns the bytes that a reply costs until it leaves. What is read of segments, the service counts."""
    return WAITING + (len(reply.data) if isinstance(reply, original.KeepAlive) else 0)
