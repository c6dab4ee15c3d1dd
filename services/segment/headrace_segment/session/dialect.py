"""The terms in which both dialects say the same: what a client asks for, and its writers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from headrace_common.session.interface import Ticket

from headrace_segment.events import Run
from headrace_segment.questions import AboutSegment, AppendBlock, BytesRead, OpenSession, ReadBytes
from headrace_segment.session.limits import SessionLimits
from headrace_segment.store.records import Numbering
from headrace_segment.wire.layout import Table
from headrace_segment.wire.original import CompleteBlock
from headrace_segment.wire.parser import MessageParser
from headrace_segment.wire.today import Append

Block = CompleteBlock | Append

Say = Callable[[Any], None]
"""Sends a message."""


@dataclass(frozen=True, slots=True)
class Setup:
    """A SetupAppend. `request`: the client's own number for it, if its dialect has one."""

    writer: bytes
    segment: str
    request: int = 0


@dataclass(frozen=True, slots=True)
class About:
    """A request about a segment that belongs to no writer."""

    question: AboutSegment
    request: int = 0


@dataclass(slots=True, eq=False)  # not frozen: one for each block
class Request:
    """A request without an answer. `number`: the client's own; `cost`: its bytes while it waits for its turn.

    `question`: None until it may be asked; `done`: it had its turn, and asks nothing.
    """

    asked: Setup | Block | About
    segment: str
    number: int
    cost: int
    received_ms: int = 0
    writer: Writer | None = None
    question: OpenSession | AppendBlock | AboutSegment | None = None
    done: bool = False


@dataclass(slots=True, eq=False)
class Writer:
    """A writer on this connection. `level`: acknowledged; `sent`: handed out; `pending`: requests without an answer."""

    id: bytes
    next_segment: str = ""
    """The segment of its next block, when all waiting requests have had their turn."""
    segment: str = ""
    is_open: bool = False
    sealed: bool = False
    """Its segment was sealed when a block came: nothing more can be stored."""
    level: int = 0
    sent: int = 0
    pending: int = 0
    waiting: list[Request] = field(default_factory=list)

    def begins(self, segment: str, level: int, *, is_open: bool) -> None:
        """Begins in a segment at a level; with its SetupAppend, and again when that is answered."""
        self.segment, self.level, self.sent = segment, level, level
        self.is_open, self.sealed = is_open, False


class Dialect(ABC):
    """One client's dialect: what its messages ask for, and the few replies that it has in a form of its own."""

    messages: ClassVar[Table]
    numbering: ClassVar[Numbering]

    def __init__(self, decoder: MessageParser[Any], limits: SessionLimits, tickets: Iterator[Ticket]) -> None:
        """`tickets`: those of questions."""
        self.decoder = decoder
        self._limits = limits
        self._tickets = tickets

    @abstractmethod
    def heard(self, said: Any, say: Say) -> Setup | Block | About | None:
        """Returns what a message asks for; None if that is done. Raises `ProtocolError`."""

    @abstractmethod
    def run(self, writer: Writer, block: Block, say: Say) -> Run:
        """Returns a block, or the part of it that lies above what its writer has sent. Raises `ProtocolError`."""

    @abstractmethod
    def read(self, question: ReadBytes, request: int, answer: BytesRead) -> Any:
        """Returns the reply to a read."""
