"""What a batch has for the quarantine table, by the policy of each reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from headrace_common.event import RecordFault
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace_lake import decode
from headrace_lake.checkpoint import Range
from headrace_lake.decode import Topics
from headrace_lake.halt import HaltError
from headrace_lake.policy import OTHER, REASONS, Policies, Policy
from headrace_lake.source import TopicPartition
from headrace_lake.start import rows_in, some
from headrace_lake.tables import QUARANTINE

_FAULTS = tuple(str(fault) for fault in RecordFault)


class Quarantine:
    """Both sources of the quarantine table: the records of the quarantine topic, and faulty ones of the events topic."""

    def __init__(self, spark: SparkSession, lake: str, *, topics: Topics, policies: Policies) -> None:
        self._spark = spark
        self._lake = lake
        self._topics = topics
        self._policies = policies
        self._skip = policies.where(Policy.SKIP)
        self._skips = policies.have(Policy.SKIP, (*REASONS, OTHER))
        lands = policies.have(Policy.LOG, (*REASONS, OTHER)) or policies.have(Policy.SUSPEND, (*REASONS, OTHER))
        # where nothing lands: no constant, or Spark does not even read what is to be counted
        never = sf.col("offset") < 0
        self.wanted = (~self._skip if lands else never) if self._skips else sf.lit(True)
        """Which of `rows` are landed."""

    def rows(
        self, records: DataFrame, ranges: Iterable[Range], landed_at: datetime, *, faults: bool
    ) -> DataFrame | None:
        """All rows for the table, wanted or not; None when there can be none. `faults`: events among them are faulty."""
        frames = []
        if any(item.topic == self._topics.quarantine for item in ranges):
            frames.append(decode.rejects(records, self._topics, landed_at))
        if faults:
            frames.append(decode.faults(records, self._topics, landed_at))
        if not frames:
            return None
        return frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1])

    def check(self, records: DataFrame, ranges: list[Range], landed_at: datetime) -> None:
        """Raises `HaltError` when a record's reason has the policy `suspend`. Reads the batch once more if one has it."""
        if not self._policies.have(Policy.SUSPEND, (*REASONS, OTHER)):
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
            named = some(
                [
                    f"{row['reason']} at {row['place']['topic']}/{row['place']['partition']} offset {row['place']['offset']}"
                    + (f" and {row['n'] - 1} more in this batch" if row["n"] > 1 else "")
                    for row in found
                ]
            )
            raise HaltError(
                f"LAKE__QUARANTINE suspends the job for {named}: nothing of this batch was landed; start again when these"
                f" reasons have the policy {Policy.LOG} or {Policy.SKIP}"
            )

    def measures(self, places: list[TopicPartition]) -> list[Column]:
        """What to count of `rows` while they are written: for `measured` and `by_reason`."""
        columns = []
        for index, (topic, partition) in enumerate(places):
            here = (sf.col("topic") == topic) & (sf.col("partition") == partition)
            columns.append(sf.count_if(here).alias(f"r{index}"))
            if self._skips:
                columns.append(sf.count_if(here & self._skip).alias(f"s{index}"))
        columns += [sf.count_if(sf.col("reason") == reason).alias(reason) for reason in REASONS]
        return columns

    def measured(self, places: list[TopicPartition], seen: Mapping[str, int]) -> dict[TopicPartition, tuple[int, int]]:
        """(rows, how many of them are skipped) of each of `places`."""
        return {place: (seen[f"r{index}"], seen.get(f"s{index}", 0)) for index, place in enumerate(places)}

    def by_reason(self, places: list[TopicPartition], seen: Mapping[str, int], policy: Policy) -> dict[str, int]:
        """How many rows have a reason with `policy`, by reason; `OTHER`: with one that is in no list."""
        total = sum(count for count, _ in self.measured(places, seen).values())
        found = {reason: seen[reason] for reason in REASONS}
        found[OTHER] = total - sum(found.values())
        return {reason: count for reason, count in found.items() if count and self._policies.have(policy, (reason,))}

    def there(self, ranges: list[Range]) -> dict[TopicPartition, int]:
        """How many rows of `ranges` the table has. Blocks."""
        names = {topic_id: name for name, topic_id in self._topics.ids.items()}
        found = rows_in(self._spark, self._lake, QUARANTINE, ranges, self._topics.ids)
        counted = found.groupBy("topic_id", "partition").count().collect()
        return {(names[topic_id], number): count for topic_id, number, count in counted}
