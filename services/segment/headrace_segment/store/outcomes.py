"""The outcome of a question that may become a record."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headrace_segment.store.records import Change


class Refusal(Enum):
    """The reason why nothing is stored."""

    NO_SEGMENT = "there is no such segment"
    EXISTS = "the segment is there already"
    SESSION = "the writer is in another session"
    NUMBERING = "the writer's levels count something else"
    REPEAT = "it is stored already"
    SEALED = "the segment is sealed"
    GAP = "it does not begin at its writer's level"
    NONSENSE = "its numbers contradict each other, or the segment's"


@dataclass(frozen=True, slots=True)
class Opened:
    """A session has begun at `level`, which is final: nothing of the writer's earlier sessions counts from here on.

    `era`: see `headrace_segment.store.state.Segment`.
    """

    segment: str
    writer: bytes
    session: bytes
    level: int
    era: int = 0


@dataclass(slots=True)  # not frozen: one for each block
class Appended:
    """A block counts. `length`: the segment's, with it."""

    segment: str
    writer: bytes
    session: bytes
    level: int
    length: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A block does not count, or no session has begun. `after`: the level that a block would have brought, else None.

    `length`: the segment's.
    """

    segment: str
    writer: bytes
    session: bytes
    after: int | None
    why: Refusal
    length: int = 0


@dataclass(frozen=True, slots=True)
class Changed:
    """A segment was created, sealed, truncated or deleted; with a `why`, it was refused.

    `length`, `start`: the segment's before it.
    """

    segment: str
    record: Change
    why: Refusal | None = None
    length: int = 0
    start: int = 0


Outcome = Opened | Appended | Refused | Changed
