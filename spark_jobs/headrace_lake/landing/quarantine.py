"""The rows that a batch has for the quarantine table, and the policy of each reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from headrace_common.record.contract import RecordFault
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace_lake.configuration.policy import OTHER, REASONS, Policies, Policy
from headrace_lake.kafka.checkpoint import Range
from headrace_lake.kafka.source import TopicPartition
from headrace_lake.kafka.start import first_few, rows_in
from headrace_lake.landing.recovered import EARLIEST, moment
from headrace_lake.rows import decode
from headrace_lake.rows.decode import Topics
from headrace_lake.rows.keyed_counts import counts, keyed_counts
from headrace_lake.spark.halt import HaltError
from headrace_lake.tables.digest import Sums
from headrace_lake.tables.erasures import ERASED, ErasedIds
from headrace_lake.tables.layout import QUARANTINE

_BY_PLACE: Final = "by place"
_REASONED: Final = "all reasons"
_FAULTS = tuple(str(fault) for fault in RecordFault)


@dataclass(frozen=True)
class QuarantineCounts:
    """Counts of the rows that a batch brought to the quarantine table."""

    reasons: Mapping[str, int] = field(default_factory=dict)
    """Rows that landed, by reason, as far as they were counted."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Rows that a policy left out, by reason."""
    since: datetime | None = None
    """The earliest `landed_at` of the rows, if an earlier run wrote some of them."""
    digests: Sequence[Sums | None] = ()
    """By slot; see `Slots`."""


class Quarantine:
    """Rows from both sources: all records of the quarantine topic, and faulty records of the events topic."""

    def __init__(
        self, spark: SparkSession, lake: str, *, topics: Topics, policies: Policies, erased: ErasedIds
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._topics = topics
        self._policies = policies
        self._erased = erased
        self._skip = policies.where(Policy.SKIP)
        self._skips = policies.have(Policy.SKIP)
        lands = policies.have(Policy.LOG) or policies.have(Policy.SUSPEND)
        # if nothing lands: not a constant, otherwise Spark would not read the rows that are counted
        never = sf.col("offset") < 0
        self._kept = (~self._skip if lands else never) if self._skips else sf.lit(True)

    @property
    def wanted(self) -> Column:
        """Condition: which of `rows` land."""
        return self._kept & ~sf.col(ERASED) if self._erased.any() else self._kept

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

    def check(self, records: DataFrame, ranges: list[Range], landed_at: datetime) -> None:
        """Raises `HaltError` if a record's reason has the policy `suspend`. Reads the batch once more if any reason has it."""
        if not self._policies.have(Policy.SUSPEND):
            return
        faults = self._policies.have(Policy.SUSPEND, _FAULTS) and any(
            item.topic == self._topics.events for item in ranges
        )
        rows = self.rows(records, ranges, landed_at, faults=faults)
        if rows is None:
            return
        place = sf.struct("topic", "partition", "offset")
        found = (
            rows.where(self._policies.where(Policy.SUSPEND))
            .groupBy("reason").agg(sf.min(place).alias("place"), sf.count(sf.lit(1)).alias("n")).orderBy("reason").collect()
        )  # fmt: skip
        if found:
            named = first_few(
                [
                    f"{row['reason']} at {row['place']['topic']}/{row['place']['partition']} offset {row['place']['offset']}"
                    + (f" and {row['n'] - 1} more in this batch" if row["n"] > 1 else "")
                    for row in found
                ]
            )
            raise HaltError(
                f"LAKE__QUARANTINE suspends the job for {named}: nothing of this batch was landed; give these reasons the"
                f" policy {Policy.LOG} or {Policy.SKIP}, and start again"
            )

    def measures(self) -> list[Column]:
        """Aggregates to observe while `rows` are written; `measured` and `by_reason` read their values."""
        of_events = sf.when(sf.col("topic") == self._topics.events, 2).otherwise(0)
        left_out = self._skip | sf.col(ERASED) if self._erased.any() else self._skip
        skipped = sf.when(left_out, 1).otherwise(0) if self._skips or self._erased.any() else sf.lit(0)
        by_place = keyed_counts(sf.col("partition") * 4 + of_events + skipped).alias(_BY_PLACE)
        # erased items have no reason here: they are left out whatever the policy
        stays = ~sf.col(ERASED) if self._erased.any() else sf.lit(True)
        by_reason = (sf.count_if(stays & (sf.col("reason") == reason)).alias(reason) for reason in REASONS)
        return [by_place, *by_reason, sf.count_if(stays).alias(_REASONED)]

    def measured(self, places: list[TopicPartition], seen: Mapping[str, Any]) -> dict[TopicPartition, tuple[int, int]]:
        """Returns place -> (rows, skipped rows)."""
        by_place = counts(seen[_BY_PLACE])
        found = {}
        for topic, partition in places:
            key = partition * 4 + (2 if topic == self._topics.events else 0)
            found[topic, partition] = (by_place[key] + by_place[key + 1], by_place[key + 1])
        return found

    def by_reason(self, seen: Mapping[str, Any], policy: Policy) -> dict[str, int]:
        """Returns reason -> number of rows, for reasons with `policy`; `OTHER`: unknown reasons."""
        found = {reason: seen[reason] for reason in REASONS}
        found[OTHER] = seen[_REASONED] - sum(found.values())
        return {reason: count for reason, count in found.items() if count and self._policies.have(policy, (reason,))}

    def there(self, ranges: list[Range]) -> tuple[dict[TopicPartition, int], datetime | None]:
        """Returns partition -> number of rows of `ranges` in the table; and their earliest `landed_at`. Blocks."""
        names = {topic_id: name for name, topic_id in self._topics.ids.items()}
        found = rows_in(self._spark, self._lake, QUARANTINE, ranges, self._topics.ids)
        counted = found.groupBy("topic_id", "partition").agg(sf.count(sf.lit(1)), sf.expr(EARLIEST)).collect()
        since = min((moment(row[3]) for row in counted), default=None)
        return {(names[topic_id], number): count for topic_id, number, count, _ in counted}, since
