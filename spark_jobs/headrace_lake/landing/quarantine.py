"""The rows that a batch has for the quarantine table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from headrace_lake.configuration.reasons import OTHER, REASONS
from headrace_lake.kafka.checkpoint import Range
from headrace_lake.landing.left_out import listed
from headrace_lake.rows import decode
from headrace_lake.rows.decode import Topics, quoted
from headrace_lake.rows.keyed_counts import keyed_counts
from headrace_lake.tables.erasures import ERASED, ErasedIds

RECORDS: Final = "records"
"""The measure that counts records of the quarantine topic by partition."""
_REASONED: Final = "all reasons"


class Quarantine:
    """Rows from both sources: all records of the quarantine topic, and faulty records of the events topic."""

    def __init__(self, topics: Topics, erased: ErasedIds) -> None:
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
        """Aggregates to observe while `rows` are written; `by_reason` and `left_out.read` read their values."""
        of_topic = f"if(topic = {quoted(self._topics.quarantine)}, partition, null)"
        by_reason = (sf.count_if(self.wanted & (sf.col("reason") == reason)).alias(reason) for reason in REASONS)
        return [
            keyed_counts(of_topic).alias(RECORDS),
            *by_reason,
            sf.count_if(self.wanted).alias(_REASONED),
            listed(~self.wanted, "id"),
        ]

    def by_reason(self, seen: Mapping[str, Any]) -> dict[str, int]:
        """Returns reason -> number of rows; `OTHER`: unknown reasons."""
        found = {reason: seen[reason] for reason in REASONS}
        found[OTHER] = seen[_REASONED] - sum(found.values())
        return {reason: count for reason, count in found.items() if count}
