"""The writers of a conversation, and the first way of their blocks: the events to the events topic, in frames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from headrace_common.record.event import Envelope
from headrace_common.session.interface import Frame, Peer, Ticket
from headrace_common.session.ledger import Ledger

from headrace_segment.events import BlockFrame, Run, envelope
from headrace_segment.questions import AppendBlock
from headrace_segment.session.fifo import Fifo
from headrace_segment.session.limits import WAITING, SessionLimits
from headrace_segment.wire.original import CompleteBlock
from headrace_segment.wire.today import Append

B = TypeVar("B", bound=CompleteBlock | Append)
"""A client's block, in its dialect."""


@dataclass(frozen=True, slots=True)
class Setup:
    """A SetupAppend. `request`: the client's own number for it, if its dialect has one."""

    writer: bytes
    segment: str
    request: int = 0


@dataclass(slots=True)  # not frozen: one for each block
class WaitingRequest(Generic[B]):
    """A request that waits for its turn. `number`: its own on the connection; `segment`: the one that it is about."""

    asked: Setup | B
    segment: str
    number: int
    received_ms: int

    @property
    def size(self) -> int:
        """Bytes that it costs while it waits."""
        return WAITING + (0 if isinstance(self.asked, Setup) else len(self.asked.data))


@dataclass(slots=True)  # not frozen: one for each block
class HandedOut:
    """A block whose events go to the events topic; its bytes follow them. `number`: its own on the connection."""

    session: bytes
    run: Run
    number: int
    request: int

    def question(self, ticket: Ticket) -> AppendBlock:
        """Makes the question that asks to append the bytes, whose events are stored now."""
        run = self.run
        return AppendBlock(ticket, run.segment, run.writer, self.session, run.before, run.after, run.data)


@dataclass(slots=True, eq=False)
class Writer(Generic[B]):
    """A writer on this connection. `level`: acknowledged; `sent`: handed out.

    `next_segment`: the segment of its next block, when all waiting requests have had their turn.
    """

    id: bytes
    next_segment: str
    publishing: Ledger[HandedOut]
    segment: str = ""
    session: bytes | None = None
    request: int = 0
    """The client's own number of the last SetupAppend that had its turn."""
    level: int = 0
    sent: int = 0
    era: int = 0
    sealed: bool = False
    """Its segment was sealed when a block came: nothing more of this session can be stored."""
    waiting: Fifo[WaitingRequest[B]] = field(default_factory=Fifo)
    under_way: int = 0  # requests that had their turn and have no answer yet

    def sets_up(self, setup: Setup, first: int) -> None:
        """Begins to set it up: its SetupAppend has its turn. `first`: the level of a writer that has stored nothing."""
        self.segment, self.request = setup.segment, setup.request
        self.session, self.sealed = None, False
        self.level = self.sent = first

    def opened(self, session: bytes, level: int, era: int) -> None:
        """Notes its session: its blocks count from here on."""
        self.session = session
        self.level = self.sent = level
        self.era = era


class Publishing(Generic[B]):
    """The frames of one conversation."""

    __slots__ = ("_envelopes", "_limits", "_peer", "_ready", "_writers")

    def __init__(self, peer: Peer, limits: SessionLimits) -> None:
        self._peer = peer
        self._limits = limits
        self._ready: Fifo[BlockFrame] = Fifo()
        self._writers: dict[Ticket, Writer[B]] = {}
        self._envelopes: dict[str, Envelope] = {}

    def __bool__(self) -> bool:
        """Whether a frame that is not stored was handed out, or can be."""
        return bool(self._writers)

    def add(self, writer: Writer[B], run: Run, number: int, request: int, received_ms: int) -> None:
        """Hands out a block that has its turn, and counts as under way."""
        assert writer.session is not None
        frame = BlockFrame(run, received_ms, self._envelope(run.segment), self._limits.event_bytes)
        frame.ticket = writer.publishing.add(HandedOut(writer.session, run, number, request))
        self._writers[frame.ticket] = writer
        self._ready.append(frame)

    def _envelope(self, segment: str) -> Envelope:
        if segment not in self._envelopes:
            if len(self._envelopes) >= self._limits.writers:
                self._envelopes.clear()
            self._envelopes[segment] = envelope(self._peer, segment)
        return self._envelopes[segment]

    def frames(self) -> Iterator[Frame]:
        """Hands out the frames, each once and in order."""
        return self._ready.drain()

    def stored(self, ticket: Ticket, stored: int, whole: bool) -> Writer[B]:
        """Does the same as `headrace_common.session.interface.Session.stored`. Returns the frame's writer."""
        writer = self._writers.pop(ticket) if whole else self._writers[ticket]
        writer.publishing.stored(ticket, stored, whole)
        return writer
