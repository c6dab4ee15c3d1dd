"""The terms in which both dialects say the same: what a client asks for, and its writers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace_common.record.event import Envelope
from headrace_common.session.interface import Ticket

from headrace_segment.events import Run
from headrace_segment.questions import AboutSegment, AppendBlock, BytesRead, OpenSession, ReadBytes
from headrace_segment.session.limits import WAITING, SessionLimits
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
    """A SetupAppend."""

    writer: bytes
    segment: str


@dataclass(slots=True, eq=False)  # not frozen: one for each block
class Request:
    """A request without an answer. `number`: the client's own, if its dialect has one. `question`: None until it may be asked."""

    asked: Setup | Block | AboutSegment
    number: int = 0
    received_ms: int = 0
    writer: Writer | None = None
    question: OpenSession | AppendBlock | AboutSegment | None = None

    @property
    def cost(self) -> int:
        """Bytes that it costs while it waits for its turn."""
        return WAITING + len(getattr(self.asked, "data", b""))


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
    def heard(self, said: Any, say: Say) -> Request | None:
        """Returns what a message asks for; None if that is done. Raises `ProtocolError`."""

    @abstractmethod
    def run(self, writer: Writer, block: Block, say: Say) -> Run:
        """Returns what a block brings. Raises `ProtocolError` if that does not follow what its writer has sent."""

    @abstractmethod
    def read(self, question: ReadBytes, request: int, answer: BytesRead) -> Any:
        """Returns the reply to a read."""
