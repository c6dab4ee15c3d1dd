"""Where a job begins: in its checkpoint; or, with a new one, where the `batches` table says that the last job ended.

Never "earliest" or "latest" for a partition that was landed before: the one would land twice, the other would lose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace_common.event import GapReason
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace_lake.checkpoint import Range
from headrace_lake.source import Topic, TopicPartition
from headrace_lake.tables import BATCHES, EVENTS, GAPS, QUARANTINE

_EARLIEST = -2  # Spark's name for the first offset still there
_SHOWN = 5

Ends = dict[TopicPartition, int]


@dataclass
class Position:
    """How far the tables are, per partition of the topics that exist now."""

    landed: Ends
    """One past the last offset that `batches` covers; a partition it never saw is absent."""
    strays: Ends
    """One past the last offset of rows that another job left beyond that when it was shut out; absent where none are."""

    def starting(self, topics: Mapping[str, Topic]) -> dict[str, dict[str, int]]:
        """Spark's `startingOffsets` for all partitions of `topics`."""
        return {
            name: {str(number): self.landed.get((name, number), _EARLIEST) for number in range(topic.partitions)}
            for name, topic in topics.items()
        }


@dataclass(frozen=True)
class Covered:
    """What the tables say of topics, by `batches` and by the gaps that were accepted."""

    ends: Ends
    """One past the last offset covered, per partition of the topics that exist now with any."""
    former: Mapping[tuple[str, str, int], int]
    """The same of topics with these names that are no more: (name, Kafka's id, partition)."""
    given_up: frozenset[tuple[str, int | None]]
    """(Kafka's id, partition) of topics that are no more, whose rest was accepted as lost."""


def covered(spark: SparkSession, lake: str, topics: Mapping[str, Topic]) -> Covered:
    """How far the tables are with `topics`. Blocks: one query."""
    names = {topic.id: name for name, topic in topics.items()}
    place = ("topic", "topic_id", "partition")
    batches = _read(spark, lake, BATCHES).select(*place, "to", sf.lit("").alias("reason"))
    accepted = _read(spark, lake, GAPS).select(*place, "to", "reason")
    ours = sf.col("topic").isin(list(topics)) | sf.col("topic_id").isin(list(names))
    told = sf.col("to").isNotNull() | (sf.col("reason") == str(GapReason.RECREATED))
    rows = batches.unionAll(accepted).where(ours & told).groupBy(*place, "reason").agg(sf.max("to")).collect()
    ends: Ends = {}
    former = {}
    for topic, topic_id, number, reason, end in rows:
        if topic_id in names:
            if end is not None:
                pair = (names[topic_id], number)
                ends[pair] = max(ends.get(pair, 0), end)
        elif not reason:
            former[topic, topic_id, number] = end
    given_up = frozenset((row[1], row[2]) for row in rows if row["reason"] == GapReason.RECREATED)
    return Covered(ends, former, given_up)


def strays(spark: SparkSession, lake: str, landed: Ends, topics: Mapping[str, Topic]) -> Ends:
    """One past the last offset of rows that lie beyond `landed`, where there are any. Blocks; reads the newest files only."""
    names = {topic.id: name for name, topic in topics.items()}
    ids = {name: topic.id for name, topic in topics.items()}
    starts = {(name, n): landed.get((name, n), 0) for name, topic in topics.items() for n in range(topic.partitions)}
    beyond = landed_already(spark, lake, EVENTS, starts, ids).unionAll(
        landed_already(spark, lake, QUARANTINE, starts, ids)
    )
    lasts = beyond.groupBy("topic_id", "partition").agg(sf.max("offset")).collect()
    return {(names[topic_id], number): last + 1 for topic_id, number, last in lasts}


def landed_already(spark: SparkSession, lake: str, table: str, starts: Ends, ids: Mapping[str, str]) -> DataFrame:
    """(topic_id, partition, offset) of the rows of `table` from `starts` on: what an interrupted job left there.

    `ids`: topic -> Kafka's id of it.
    """
    return _read(spark, lake, table).where(_from(starts, ids)).select("topic_id", "partition", "offset")


def rows_in(spark: SparkSession, lake: str, table: str, ranges: Iterable[Range], ids: Mapping[str, str]) -> DataFrame:
    """(topic_id, partition, offset) of the rows of `table` in `ranges`; `ids` as in `landed_already`."""
    conditions = [
        f"(topic_id = '{ids[topic]}' and partition = {number} and offset >= {start} and offset < {end})"
        for topic, number, start, end in ranges
    ]
    rows = _read(spark, lake, table).where(" or ".join(conditions) or "false")
    return rows.select("topic_id", "partition", "offset")


def _from(starts: Ends, ids: Mapping[str, str]) -> str:
    """A condition in plain comparisons, so that Delta skips files by their statistics."""
    return " or ".join(
        f"(topic_id = '{ids[name]}' and partition = {number} and offset >= {start})"
        for (name, number), start in starts.items()
    )


def _read(spark: SparkSession, lake: str, table: str) -> DataFrame:
    return spark.read.format("delta").load(f"{lake}/{table}")


def some(items: list[str], shown: int = _SHOWN) -> str:
    """The first of `items` in a line, and how many more there are."""
    more = f" and {len(items) - shown} more" if len(items) > shown else ""
    return "; ".join(items[:shown]) + more
