"""The writers of a conversation, and the first way of their blocks: the events to the events topic, in frames.

While `AHEAD` requests of a writer are under way, its next small blocks are held. They go when one of these is answered, together:
one frame, one record of the log, one acknowledgement. Blocks of a writer that has less under way, and large ones, go at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from headrace_common.record.event import Envelope
from headrace_common.session.interface import Frame, Peer, Ticket
from headrace_common.session.ledger import Ledger

from headrace_segment.events import NEXT_OVERHEAD, BlockFrame, Run, envelope
from headrace_segment.questions import AppendBlock
from headrace_segment.session.fifo import Fifo
from headrace_segment.session.limits import AHEAD, LITTLE, TOGETHER, WAITING, SessionLimits
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
    """Blocks whose events go to the events topic; their bytes follow them.

    `number`: of the first on the connection; `request`: of the last.
    """

    session: bytes
    frame: BlockFrame
    number: int
    request: int

    def question(self, ticket: Ticket) -> AppendBlock:
        """Makes the question that asks to append the bytes, whose events are stored now."""
        runs = [run for run, _ in self.frame.blocks]
        first, last = runs[0], runs[-1]
        data = first.data if first is last else b"".join(run.data for run in runs)
        count = sum(run.count for run in runs)
        return AppendBlock(ticket, first.segment, first.writer, self.session, first.before, last.after, count, data)


@dataclass(slots=True, eq=False)
class Writer(Generic[B]):
    """A writer on this connection. `level`: acknowledged; `sent`: handed out, or held.

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
    place: int = 0
    """The place of the event at `sent`; see `headrace_segment.store.state.Writer`."""
    era: int = 0
    sealed: bool = False
    """Its segment was sealed when a block came: nothing more of this session can be stored."""
    waiting: Fifo[WaitingRequest[B]] = field(default_factory=Fifo)
    under_way: int = 0  # requests that had their turn and have no answer yet; blocks that go together are one
    held: HandedOut | None = None
    """Blocks that had their turn, and wait until fewer requests are under way."""

    def sets_up(self, setup: Setup, first: int) -> None:
        """Begins to set it up: its SetupAppend has its turn. `first`: the level of a writer that has stored nothing."""
        self.segment, self.request = setup.segment, setup.request
        self.session, self.sealed = None, False
        self.level = self.sent = first

    def opened(self, session: bytes, level: int, place: int, era: int) -> None:
        """Notes its session: its blocks count from here on."""
        self.session = session
        self.level = self.sent = level
        self.place, self.era = place, era


class Publishing(Generic[B]):
    """The frames of one conversation. `held_bytes`: what the held blocks cost."""

    __slots__ = ("_envelopes", "_limits", "_peer", "_ready", "_writers", "held_bytes")

    def __init__(self, peer: Peer, limits: SessionLimits) -> None:
        self._peer = peer
        self._limits = limits
        self._ready: Fifo[BlockFrame] = Fifo()
        self._writers: dict[Ticket, Writer[B]] = {}
        self._envelopes: dict[str, Envelope] = {}
        self.held_bytes = 0

    def __bool__(self) -> bool:
        """Whether a frame that is not stored was handed out, or can be."""
        return bool(self._writers)

    def add(self, writer: Writer[B], run: Run, number: int, request: int, received_ms: int) -> bool:
        """Takes a block that has its turn, and counts as under way. Returns whether it is part of one that is held already."""
        assert writer.session is not None
        held = writer.held
        joins = held is not None and held.frame.size + len(run.data) + NEXT_OVERHEAD <= TOGETHER
        if held is None or not joins:
            self._release(writer)
            frame = BlockFrame(run, received_ms, self._envelope(run.segment), self._limits.event_bytes)
            writer.held = HandedOut(writer.session, frame, number, request)
            self.held_bytes += frame.size
        else:
            self.held_bytes += held.frame.join(run, received_ms)
            held.request = request
        little = len(run.data) < LITTLE and run.count < LITTLE  # clients name counts, and a record's has 32 bits
        if writer.under_way <= AHEAD or not little:
            self._release(writer)
        return joins

    def go_on(self, writer: Writer[B]) -> None:
        """Hands out the held blocks of a writer that has fewer requests under way now."""
        if writer.under_way <= AHEAD:
            self._release(writer)

    def _release(self, writer: Writer[B]) -> None:
        held, writer.held = writer.held, None
        if held is not None:
            self.held_bytes -= held.frame.size
            held.frame.ticket = writer.publishing.add(held)
            self._writers[held.frame.ticket] = writer
            self._ready.append(held.frame)

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
