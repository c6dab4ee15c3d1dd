"""The questions of a session to the store, and their answers. The two share these messages and know nothing else of each other.

A question that becomes a record of the log is answered by the record's outcome (`headrace_segment.store.outcomes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from headrace_common.session.interface import Ticket

from headrace_segment.store.records import Change, Numbering

OVERHEAD: Final = 512
"""Bytes that a question costs beyond its data."""


@dataclass(frozen=True, slots=True)
class SegmentQuestion:
    """The beginning of most questions."""

    ticket: Ticket
    segment: str
    size: ClassVar[int] = OVERHEAD


@dataclass(frozen=True, slots=True)
class OpenSession(SegmentQuestion):
    """Asks whether this writer may append. Answered by `Opened`: blocks count from its level on, in its session and in no other;
    by `Refused`, `LimitExceeded` or `OutcomeUnknown`.

    A writer that numbers bytes has no other way to create its segment: this creates it.
    """

    writer: bytes
    numbering: Numbering


@dataclass(slots=True)  # not frozen: one for each block
class AppendBlock:
    """Asks to append data whose events are stored. Answered by `Appended`, for a repeat with the level up to which all is stored
    for ever; by `Refused` or `OutcomeUnknown`, in the order of asking within a session.
    """

    ticket: Ticket
    segment: str
    writer: bytes
    session: bytes
    before: int
    after: int
    data: bytes

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        return len(self.data) + OVERHEAD


@dataclass(frozen=True, slots=True)
class ReadBytes(SegmentQuestion):
    """Asks for bytes of a segment, up to `length`.

    Answered by `BytesRead`, `Truncated`, `NoSegment` or `OutcomeUnknown`; at the tail that may take `SegmentSection.tail_wait`.
    A connection hears `BytesRead` with bytes again only after `RepliesLeft`.
    """

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class RepliesLeft:
    """Reports that the reply with the bytes of a segment has left for the client. Answered at once."""

    ticket: Ticket
    size: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class ChangeSegment(SegmentQuestion):
    """Asks to create, seal, truncate or delete a segment. Answered by `Changed`, `LimitExceeded` or `OutcomeUnknown`."""

    change: Change


@dataclass(frozen=True, slots=True)
class DescribeSegment(SegmentQuestion):
    """Asks for the present state of a segment. Answered by `SegmentDescription`, `NoSegment` or `OutcomeUnknown`."""


AboutSegment = ReadBytes | ChangeSegment | DescribeSegment
"""A question about a segment, not about a writer."""

StoreQuestion = OpenSession | AppendBlock | RepliesLeft | AboutSegment


@dataclass(frozen=True, slots=True)
class BytesRead:
    """`at_tail`: the segment has no more bytes now; `end_of_segment`: nor will it have."""

    data: bytes
    at_tail: bool
    end_of_segment: bool


@dataclass(frozen=True, slots=True)
class Truncated:
    """The bytes that were asked for lie before `start` and are gone."""

    start: int


@dataclass(frozen=True, slots=True)
class NoSegment:
    """The segment does not exist."""


@dataclass(frozen=True, slots=True)
class SegmentDescription:
    """`modified`: when it was changed last (Unix, ms), by the log."""

    start: int
    length: int
    sealed: bool
    modified: int


@dataclass(frozen=True, slots=True)
class LimitExceeded:
    """It would exceed a limit of the service, so it was not done. `setting`: the limit's name."""

    setting: str


@dataclass(frozen=True, slots=True)
class OutcomeUnknown:
    """It is unknown whether the record will count, or the store cannot be read now; the conversation ends."""


@dataclass(frozen=True, slots=True)
class SessionLost:
    """Told without a question: the writer has opened another session elsewhere."""

    writer: bytes
    session: bytes
