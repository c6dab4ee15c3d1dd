"""What a batch is to do, what it has done, and the calls between: `Landing` decides, an `Execution` reads and writes rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol

from headrace_common.record.contract import Reason, RecordFault

from headrace_lake.dedup.index import IndexState
from headrace_lake.kafka.checkpoint import Range
from headrace_lake.kafka.source import TopicPartition
from headrace_lake.landing.left_out import LeftOut
from headrace_lake.tables.on_spark import Held

REASONS: Final = tuple(str(reason) for reason in (*Reason, *RecordFault))
"""The reasons for which a record goes to quarantine: those of the receivers, and the faults that this job finds."""
OTHER: Final = "other"
"""Stands for a reason that this version does not know."""
OLDEST: Final = 86_400
"""Seconds that an age is counted as if it is higher."""


class Plan(NamedTuple):
    """One batch. All its rows land at `landed_at`, under the transaction `version`."""

    version: int
    ranges: Sequence[Range]
    landed_at: datetime
    strays: bool
    """Whether a job that was shut out may have left rows of it."""


@dataclass
class Landed:
    """The rows of one batch, as far as it has landed."""

    since: datetime
    """The earliest `landed_at` among them."""
    records: Counter[TopicPartition] = field(default_factory=Counter)
    """How many records Kafka held, by partition."""
    events: int = 0
    faulty: int = 0
    """Records of the events topic that are no events: they go to quarantine."""
    left_out: list[LeftOut] = field(default_factory=list)
    """Resends, and what was erased before."""
    newest: int | None = None
    """The latest Kafka timestamp of the events, in ms."""
    index: IndexState | None = None
    """The ids that are remembered then; None without an event, or if none are to be."""
    span: float = 0.0
    """Seconds within which `index` recognises duplicates: the horizon, or less if memory ran out."""
    ages: Mapping[int, int] = field(default_factory=dict)
    """Whole seconds, at most `OLDEST`, from the receipt of an event to the beginning of the batch -> how many landed."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Rows for quarantine, by reason."""

    def add_held(self, there: Mapping[TopicPartition, Held], ids: Mapping[str, str]) -> None:
        """Counts rows that an earlier job left; `there`: by Kafka's id of the topic, `ids`: topic -> that id."""
        names = {topic_id: name for name, topic_id in ids.items()}
        for (topic_id, number), held in there.items():
            self.records[names[topic_id], number] += held.rows
            self.since = min(self.since, held.since)


class Execution(Protocol):
    """Carries out plans, one after the other. Every call blocks."""

    def begin(self, records: Any, plan: Plan) -> Landed:
        """Takes Kafka's `records` of `plan`, without those that the tables hold, which count as landed."""

    def events(self, plan: Plan, landed: Landed) -> None:
        """Lands the events: those that are neither resends nor erased."""

    def quarantine(self, plan: Plan, landed: Landed) -> None:
        """Lands the quarantine topic's records, and the faulty ones among the events."""

    def end(self) -> None:
        """Forgets the records."""
