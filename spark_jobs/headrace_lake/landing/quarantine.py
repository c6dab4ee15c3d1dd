"""The rows that a batch has for the quarantine table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace_lake.configuration.reasons import OTHER, REASONS
from headrace_lake.kafka.checkpoint import Range
from headrace_lake.kafka.source import TopicPartition
from headrace_lake.kafka.start import rows_in
from headrace_lake.landing.recovered import EARLIEST, moment
from headrace_lake.rows import decode
from headrace_lake.rows.decode import Topics
from headrace_lake.rows.keyed_counts import counts, keyed_counts
from headrace_lake.tables.erasures import ERASED, ErasedIds
from headrace_lake.tables.layout import QUARANTINE

_BY_PLACE: Final = "by place"
_REASONED: Final = "all reasons"


@dataclass(frozen=True)
class QuarantineCounts:
    """Counts of the rows that a batch brought to the quarantine table."""

    reasons: Mapping[str, int] = field(default_factory=dict)
    """Rows that landed, by reason, as far as they were counted."""
    since: datetime | None = None
    """The earliest `landed_at` of the rows, if an earlier run wrote some of them."""


class Quarantine:
    """Rows from both sources: all records of the quarantine topic, and faulty records of the events topic."""

    def __init__(self, spark: SparkSession, lake: str, *, topics: Topics, erased: ErasedIds) -> None:
        self._spark = spark
        self._lake = lake
        self._topics = topics
        self._erased = erased

    @property
    def wanted(self) -> Column:
        """Condition: which of `rows` land."""
        return ~sf.col(ERASED) if self._erased.any() else sf.lit(True)

    def rows(
        self, records: DataFrame, ranges: Iterable[Range], landed_at: datetime, *, faults: bool
    ) -> DataFrame | None:
        """Returns all rows for the table, wanted or not; None without any. `faults`: include faulty events."""
        frames = []
        if any(item.topic == self._topics.quarantine for item in ranges):
            frames.append(decode.rejects(records, self._topics, landed_at))
        if faults:
            frames.append(decode.faults(records, self._topics, landed_at))
        if not frames:
            return None
        return self._erased.marked(frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1]), "id")

    def measures(self) -> list[Column]:
        """Aggregates to observe while `rows` are written; `measured` and `by_reason` read their values."""
        of_events = sf.when(sf.col("topic") == self._topics.events, 2).otherwise(0)
        skipped = sf.when(self.wanted, 0).otherwise(1)
        by_place = keyed_counts(sf.col("partition") * 4 + of_events + skipped).alias(_BY_PLACE)
        by_reason = (sf.count_if(self.wanted & (sf.col("reason") == reason)).alias(reason) for reason in REASONS)
        return [by_place, *by_reason, sf.count_if(self.wanted).alias(_REASONED)]

    def measured(self, places: list[TopicPartition], seen: Mapping[str, Any]) -> dict[TopicPartition, tuple[int, int]]:
        """Returns place -> (rows, skipped rows)."""
        by_place = counts(seen[_BY_PLACE])
        found = {}
        for topic, partition in places:
            key = partition * 4 + (2 if topic == self._topics.events else 0)
            found[topic, partition] = (by_place[key] + by_place[key + 1], by_place[key + 1])
        return found

    def by_reason(self, seen: Mapping[str, Any]) -> dict[str, int]:
        """Returns reason -> number of rows; `OTHER`: unknown reasons."""
        found = {reason: seen[reason] for reason in REASONS}
        found[OTHER] = seen[_REASONED] - sum(found.values())
        return {reason: count for reason, count in found.items() if count}

    def there(self, ranges: list[Range]) -> tuple[dict[TopicPartition, int], datetime | None]:
        """Returns partition -> number of rows of `ranges` in the table; and their earliest `landed_at`. Blocks."""
        names = {topic_id: name for name, topic_id in self._topics.ids.items()}
        found = rows_in(self._spark, self._lake, QUARANTINE, ranges, self._topics.ids)
        counted = found.groupBy("topic_id", "partition").agg(sf.count(sf.lit(1)), sf.expr(EARLIEST)).collect()
        since = min((moment(row[3]) for row in counted), default=None)
        return {(names[topic_id], number): count for topic_id, number, count, _ in counted}, since
