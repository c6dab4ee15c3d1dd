"""The questions of a session to the store, and their answers: all that the two know of each other."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headrace_common.session.interface import Ticket

from headrace_segment.store.records import Block, Numbering


@dataclass(frozen=True, slots=True)
class SegmentQuestion:
    """The beginning of most questions. Any may be answered by `Refused`, or by `OutcomeUnknown`: the conversation ends."""

    ticket: Ticket
    segment: str


@dataclass(frozen=True, slots=True)
class OpenSession(SegmentQuestion):
    """Asks whether this writer may append on this connection. Answered by `Opened`.

    Blocks of the writer that come on other connections are refused from then on. A writer that numbers bytes has no other way to
    create its segment: this creates it.
    """

    writer: bytes
    numbering: Numbering


@dataclass(slots=True)  # not frozen: one for each block
class AppendBlock:
    """Asks to append a block whose events are stored. Answered by `Appended`, `Refused` or `OutcomeUnknown`, in order."""

    ticket: Ticket
    segment: str
    block: Block


@dataclass(frozen=True, slots=True)
class ReadBytes(SegmentQuestion):
    """Asks for bytes of a segment, up to `length`. Answered by `BytesRead`; at the tail that may take `SegmentSection.tail_wait`.

    A connection hears `BytesRead` with bytes again only after `RepliesLeft`.
    """

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class RepliesLeft:
    """Reports that the reply with the bytes of a segment has left for the client. Answered at once."""

    ticket: Ticket


@dataclass(frozen=True, slots=True)
class CreateSegment(SegmentQuestion):
    """Asks to create a segment. Answered by `Created`."""


@dataclass(frozen=True, slots=True)
class DescribeSegment(SegmentQuestion):
    """Asks for the present state of a segment. Answered by its `Segment`."""


class Refusal(Enum):
    """The reason why nothing is done; or the limit of the service that it would exceed."""

    NO_SEGMENT = "there is no such segment"
    EXISTS = "the segment is there already"
    SESSION = "another connection has set up the writer"
    TRUNCATED = "the segment does not have these bytes"
    SEGMENTS = "SEGMENT__SEGMENTS"
    WRITERS = "SEGMENT__WRITERS"


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing is done. `start`: that of the segment, if it does not have the bytes."""

    why: Refusal
    start: int = 0


@dataclass(frozen=True, slots=True)
class Opened:
    """The writer's blocks count from `level` on, which is final."""

    level: int


@dataclass(slots=True)  # not frozen: one for each block
class Appended:
    """All up to `level` is stored for ever. `length`: the segment's, with it."""

    level: int
    length: int


@dataclass(frozen=True, slots=True)
class Created:
    """The segment is there, and was not before."""


@dataclass(frozen=True, slots=True)
class BytesRead:
    """`at_tail`: the segment has no more bytes now."""

    data: bytes
    at_tail: bool


@dataclass(frozen=True, slots=True)
class OutcomeUnknown:
    """It is unknown whether the record will count, or the store cannot be read now; the conversation ends."""
