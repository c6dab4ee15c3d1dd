"""The seam between a protocol and everything else: a session is a pure machine that hands out frames.

Inputs: bytes or whole messages, the outcomes of frames, answers, and time. Outputs: frames to publish, questions to the
service, bytes or replies to write, and `ProtocolError`. A session has no socket, no clock and no Kafka, so a test drives it
without an event loop.

A protocol subclasses `ByteSession` (a stream) or `MessageSession` (whole messages) and overrides what it needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from typing_extensions import override

from headrace_common.record.event import Part, Reject
from headrace_common.session.parser import Parser

SMALL: Final = 16 << 10
"""Largest small frame: the bytes of its events, as received or, where the session inflates, inflated."""

SMALL_PARTS: Final = 128
"""Most parts of a small frame: odd ones take 10 µs each."""

Ticket = int
"""Identifies a frame or a question within its session. Increases by one with each that is handed out."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The client at the other end. `identity` goes into `ce_source`: the TLS subject, else the address without its port."""

    address: str
    port: int
    identity: str
    certified: bool = False
    """The client has shown a certificate: `identity` is its subject, whatever it looks like."""

    @property
    def certificate(self) -> bytes:
        """The subject of its certificate, as ids have it: its address may be another when it sends again. Empty without one."""
        return self.identity.encode() if self.certified else b""

    @property
    def anonymous(self) -> bool:
        """Whether only its address names it, so that what the client says of itself may take its place."""
        return not self.certified and self.identity == self.address


Run = Part | list[Part] | int
"""A part of a frame; parts that were made in one call; or a pause, where the consumer may let others run: the bytes by which the
frame has grown, mostly none.
"""


class Frame(ABC):
    """One complete unit to publish and to acknowledge."""

    __slots__ = ()

    ticket: Ticket
    """Comes back to the session with each report."""

    received_ms: int
    """Unix time of its last byte in milliseconds: the record's timestamp."""

    acknowledged: bool = True
    """Whether the peer asked for an acknowledgement. If not, a loss would go unnoticed; such events are counted."""

    ordering_key: bytes | None = None
    """Frames with the same key keep their order: `Publisher.of` maps the key to a partition. None:
    the frame goes to its connection's partition."""

    kept: bool = False
    """Whether it waits for Kafka without a deadline: nobody waits for its answer, or sends it again. A refusal ends it, too."""

    size: int
    """Bytes that it holds now. They count towards the budgets until it is stored or abandoned."""

    small: bool = False
    """It has at most `SMALL` bytes, and does not grow: all of it may be built together."""

    made: list[Part] | None = None
    """All its events, if they are made already: it needs no slice, and `runs` is not asked."""

    @abstractmethod
    def runs(self) -> Iterator[Run]:
        """Yields its events and rejects in order, each built on demand. Each call starts over; the caller has discarded the
        parts of an earlier call.

        A frame grows only before its first part. The work between two runs takes a few milliseconds at most. Never raises for any
        bytes: content that cannot be understood becomes a reject.
        """

    def parts(self) -> Iterator[Part]:
        """Yields the parts of `runs` one by one."""
        for run in self.runs():
            if isinstance(run, list):
                yield from run
            elif not isinstance(run, int):
                yield run

    @abstractmethod
    def spoiled(self, detail: str) -> Reject:
        """Returns the whole frame, as received, as a reject with reason `internal`. Used if `runs` raises after all."""


class Caller(ABC):
    """A connection, as its service sees it. No method blocks or raises, not even after the connection has ended."""

    peer: Peer

    @abstractmethod
    def answered(self, ticket: Ticket, answer: object) -> None:
        """Answers a question; call it once for each."""

    @abstractmethod
    def end(self, why: str) -> None:
        """Ends the conversation; pending frames are still acknowledged. `why` is the metric's label."""


class Backend:
    """A service's own state, which its sessions question. Must not block or raise. This one is that of sessions that ask
    nothing.
    """

    def ask(self, question: object, caller: Caller) -> None:
        """Answers with `Caller.answered`, now or later. A connection that ends or drains waits for the answer. No deadline
        of the connection applies to it; the service bounds it.
        """
        raise AssertionError(f"no backend answers {question!r}")

    def ended(self, caller: Caller) -> None:
        """Learns that the conversation has ended. Must answer its open questions."""


NO_BACKEND: Final = Backend()


class Status(msgspec.Struct, frozen=True, gc=False):
    """The state of a session: the bytes it holds, and whether ending its conversation now would lose anything.

    Only an input (`receive`, `tick`, `answered`) changes more of it than `waiting_bytes`: a driver asks once after each. A
    Struct, because making one costs a quarter of a NamedTuple.
    """

    partial_bytes: int = 0
    """Bytes that it holds of frames that are not handed out yet."""

    waiting_bytes: int = 0
    """Bytes of complete requests that have no answer yet and are no frames, and of those answers. They count towards the budgets,
    but no time limit of the peer runs on them: this process is slow, not the peer."""

    busy: bool = False
    """It holds input that it has not parsed. Feed it empty input in a later slice, as the budgets allow."""

    unacknowledgeable: bool = False
    """Closing could lose bytes on their way: the peer has sent something without asking for an acknowledgement, or nothing has
    shown yet whether its first message will ask for one."""


NOTHING: Final = Status()
"""That of a session that holds nothing."""


class Session:
    """One client's conversation. The peer and every limit are constructor arguments. A session that overrides nothing takes
    nothing and says nothing: such a one replaces the session of a conversation that has ended, and holds no buffers.

    The driver calls `frames` and `questions` after each input, including `tick` and `answered`: time alone may complete a
    frame. It calls `questions` also after a frame is stored as a whole, and after each write. Frames and questions
    have separate tickets.
    """

    _ready: Sequence[Frame] = ()
    """A list of its complete frames that are not handed out yet, in order."""

    def frames(self) -> Iterator[Frame]:
        """Hands out complete frames to publish, each once and in order: those of `_ready`, unless the session overrides it."""
        ready, self._ready = self._ready, []
        return iter(ready)

    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        """Learns that the first `stored` parts of the frame are durable, on either topic. Frames may be stored in any order.

        `whole`: these are all its parts. No call for the same ticket follows `whole`.
        """

    def abandon(self, ticket: Ticket) -> None:
        """Learns that the frame will not be stored. Neither it nor any later frame may be acknowledged: as in a `Ledger`, where
        it never becomes whole, it holds up all after it. The driver ends the conversation over a stream; nothing more is said.
        """

    def status(self) -> Status:
        """Returns what it holds now. Takes less than a microsecond."""
        return NOTHING

    def questions(self) -> Iterator[Any]:
        """Hands out questions to its service, each once and in order: objects of the service's own, each with a ticket."""
        return iter(())

    def answered(self, ticket: Ticket, answer: object) -> None:
        """Takes the service's answer to a question. Raises `ProtocolError` if the answer ends the conversation."""
        raise AssertionError(f"question {ticket}: this session asks nothing")

    def deadline(self) -> float | None:
        """Returns the monotonic time in seconds of the next `tick`; None: never."""
        return None

    def tick(self, now: float) -> None:
        """Learns the time, and makes keep-alives and frames that are due. Raises `ProtocolError` when a handshake expires."""

    def close(self) -> None:
        """Learns that the conversation has ended: nothing is called after this. Must break what refers to the session in a
        circle, which would keep its buffers until a collection.
        """


class ByteSession(Session):
    """A conversation over a stream of bytes. Whole input and one byte at a time give the same result."""

    _decoder: Parser[Any] | None = None
    """The parser of its bytes, if it has one: `eof`, `status` and `close` are its, unless the session overrides them."""

    over: bool = False
    """What `outgoing` has returned ends the conversation: nothing more is read, said or acknowledged."""

    def receive(self, data: bytes, now_ms: int) -> bool | None:
        """Takes bytes from the peer, split anywhere, at the Unix time `now_ms` in milliseconds. Returns True only if nothing has
        changed but that more frames are pending: not its deadline, nor what it says or asks, nor its status.

        Raises `ProtocolError` when nothing more can be read from this peer. The session still hands out frames that were
        complete before the fault; they may still be stored and acknowledged.

        It does a bounded part of long work (inflating) and may leave the rest for later: see `Status.busy`.
        """

    def eof(self) -> None:
        """Learns that the peer has finished sending; pending frames are still acknowledged. Raises `ProtocolError` inside a
        frame.
        """
        if self._decoder is not None and self._decoder.partial_bytes():
            raise self._decoder.fault("the stream ends inside a message")

    @override
    def status(self) -> Status:
        decoder = self._decoder
        return NOTHING if decoder is None else Status(partial_bytes=decoder.partial_bytes(), busy=decoder.busy)

    @override
    def close(self) -> None:
        if self._decoder is not None:
            self._decoder.close()

    def outgoing(self) -> bytes:
        """Returns the bytes of the next write: one acknowledgement, reply or keep-alive. Empty if none is due.

        Call it until it returns none.
        """
        return b""


class Message:
    """One whole message of several byte frames, as ZeroMQ delivers it.

    `route` identifies the peer to answer; empty if no answer is possible. `address` is the sender's; empty if unknown. `size` is
    the bytes of its parts and its route.
    """

    __slots__ = ("address", "parts", "route", "size")

    def __init__(self, parts: Sequence[bytes], route: bytes = b"", address: str = "") -> None:
        self.parts: Final = parts
        self.route: Final = route
        self.address: Final = address
        self.size: Final = sum(map(len, parts)) + len(route)


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply to the peer that `route` identifies."""

    route: bytes
    parts: Sequence[bytes]


class MessageSession(Session):
    """A conversation of whole messages with many peers over one socket. The end of a peer is never reported, so the session
    keeps only pending messages. Replies to one route keep the order of their messages; routes do not wait for each other. Each
    message is taken at once: the session is never busy, and has neither deadlines nor questions.
    """

    def receive(self, message: Message, now_ms: int) -> None:
        """Takes one message, at the Unix time `now_ms` in milliseconds. Never raises for any message: one peer's fault must
        not end other peers' conversations. A faulty message is answered, quarantined or counted.
        """

    def outgoing(self) -> Reply | None:
        """Returns the next reply to send; None when there is none. Call it until it returns None."""
        return None
