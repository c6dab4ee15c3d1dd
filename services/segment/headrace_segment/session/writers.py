"""The writers of a conversation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from headrace_common.session.ledger import Ledger

from headrace_segment.events import Run
from headrace_segment.session.fifo import Fifo
from headrace_segment.session.limits import WAITING


class AppendedBlock(Protocol):
    """A client's block, in either dialect."""

    @property
    def writer(self) -> bytes:
        """Its writer's id."""

    @property
    def data(self) -> bytes:
        """The bytes that it appends."""


B = TypeVar("B", bound=AppendedBlock)


@dataclass(frozen=True, slots=True)
class Setup:
    """A SetupAppend. `request`: the client's own number for it, if its dialect has one. `create`: it may create its segment."""

    writer: bytes
    segment: str
    request: int = 0
    create: bool = False


@dataclass(slots=True)  # not frozen: one for each block
class Waiting(Generic[B]):
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
    """A block whose events are on their way to the events topic; its bytes follow them."""

    session: bytes
    run: Run
    number: int
    request: int


@dataclass(slots=True, eq=False)
class Writer(Generic[B]):
    """A writer on this connection. `level`: acknowledged; `sent`: handed out.

    `next_segment`: what its next block is about, when all that waits has had its turn.
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
    """Of the last event that was handed out; see `headrace_segment.store.state.Writer`."""
    era: int = 0
    sealed: bool = False
    """Its segment was sealed when a block came: nothing more of this session can be stored."""
    waiting: Fifo[Waiting[B]] = field(default_factory=Fifo)
    under_way: int = 0  # requests that had their turn and have no answer yet
    alone: bool = False
    """The request that had its turn last has it alone: nothing before it or behind it is under way at the same time."""

    def sets_up(self, setup: Setup, first: int) -> None:
        """Its SetupAppend has its turn. `first`: the level of a writer that has stored nothing."""
        self.segment, self.request = setup.segment, setup.request
        self.session, self.sealed = None, False
        self.level = self.sent = first

    def opened(self, session: bytes, level: int, place: int, era: int) -> None:
        """Its blocks count from here on."""
        self.session = session
        self.level = self.sent = level
        self.place, self.era = place, era
