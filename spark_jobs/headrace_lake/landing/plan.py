"""What a batch is to do, what it has done, and the calls between: `Landing` decides, an `Execution` reads and writes rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from headrace_lake.dedup.index import IndexState
from headrace_lake.kafka.checkpoint import Range
from headrace_lake.landing.left_out import LeftOut
from headrace_lake.tables.on_spark import Held


class Plan(NamedTuple):
    """One batch. All its rows land at `landed_at`, under the transaction `version`."""

    what: str
    """For pages that show what runs."""
    version: int
    ranges: Sequence[Range]
    landed_at: datetime
    strays: bool
    """Whether a job that was shut out may have left rows of it."""


@dataclass(frozen=True)
class DedupStatus:
    """How well duplicates are recognised now."""

    state: IndexState
    span: float
    """Seconds within which the Kafka timestamps of duplicates must be: the horizon, or less if memory ran out."""
    short: bool
    """Whether the span is less than the horizon."""


@dataclass(frozen=True)
class EventCounts:
    """Counts of a batch's records of the events topic."""

    records: Mapping[int, int] = field(default_factory=dict)
    """By partition."""
    events: int = 0
    """Rows that landed."""
    faulty: int = 0
    """Records that are no events: they go to quarantine."""
    left_out: Sequence[LeftOut] = ()
    """Resends, and events that were erased before."""
    newest: int | None = None
    """The latest Kafka timestamp of the records, in ms."""
    ages: Mapping[int, int] = field(default_factory=dict)
    """How many of the rows are in each `freshness.span`."""
    erased: int = 0
    """How many of the events left out were erased before."""


@dataclass(frozen=True)
class QuarantineCounts:
    """Counts of a batch's records for quarantine."""

    records: Mapping[int, int] = field(default_factory=dict)
    """Of the quarantine topic, by partition."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Rows that landed, of both topics, by reason."""
    left_out: Sequence[LeftOut] = ()
    """Records that were erased before."""


class Execution(Protocol):
    """Carries out plans, one after the other. Every call blocks."""

    def begin(self, records: Any, plan: Plan) -> Mapping[tuple[str, int], Held]:
        """Takes Kafka's `records` of `plan`, without those that the tables hold, which it returns if there may be strays."""

    def events(self, plan: Plan) -> EventCounts:
        """Lands the events: those that are neither resends nor erased."""

    def quarantine(self, plan: Plan, faulty: int) -> QuarantineCounts:
        """Lands the quarantine topic's records, and the `faulty` ones among the events."""

    def end(self) -> None:
        """Forgets the records."""

    def dedup_status(self) -> DedupStatus:
        """Returns how well duplicates of the newest records are recognised."""
