"""The two dialects, what their clients ask for, and their writers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from headrace_common.record.event import Envelope

from headrace_segment.questions import AppendBlock, CreateSegment, DescribeSegment, OpenSession, ReadBytes
from headrace_segment.store.records import Numbering
from headrace_segment.wire import messages, original
from headrace_segment.wire.layout import Table
from headrace_segment.wire.original import OriginalDecoder
from headrace_segment.wire.parser import Block, MessageParser
from headrace_segment.wire.today import TodayDecoder

WAITING: Final = 256
"""Bytes that a request costs, beyond its own, while it waits for those before it."""

Asks = OpenSession | ReadBytes | CreateSegment | DescribeSegment


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a client speaks. `least`: bytes that a reader gets even if it asks for less, if they are there."""

    decoder: type[MessageParser[Any]]
    messages: Table
    numbering: Numbering
    least: int


ORIGINAL: Final = Dialect(OriginalDecoder, original.MESSAGES, Numbering.BYTES, 0)
TODAY: Final = Dialect(TodayDecoder, messages.MESSAGES, Numbering.EVENTS, 8)


@dataclass(slots=True, eq=False)  # not frozen: one for each block
class Request:
    """A request without an answer. `number`: the client's own, if its dialect has one. `question`: None until it may be asked."""

    asked: Asks | Block
    number: int
    received_ms: int
    writer: Writer | None = None
    question: Asks | AppendBlock | None = None

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
