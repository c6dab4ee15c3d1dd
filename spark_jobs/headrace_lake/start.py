"""Where a job begins: in its checkpoint; or, with a new one, where the `batches` table says that the last job ended.

Never "earliest" or "latest" for a partition that was landed before: the one would land twice, the other would lose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace_lake.halt import HaltError
from headrace_lake.source import Brokers, Topic, TopicPartition
from headrace_lake.tables import BATCHES, EVENTS, QUARANTINE

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


def landed(spark: SparkSession, lake: str, topics: Mapping[str, Topic]) -> Ends:
    """One past the last offset that `batches` covers, per partition of `topics` that it has seen. Blocks."""
    names = {topic.id: name for name, topic in topics.items()}
    rows = _read(spark, lake, BATCHES).where(sf.col("topic_id").isin(list(names)))
    ends = rows.groupBy("topic_id", "partition").agg(sf.max("to")).collect()
    return {(names[topic_id], number): end for topic_id, number, end in ends}


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


def check_offsets(brokers: Brokers, found: Position, topics: Mapping[str, Topic]) -> None:
    """Raises `HaltError` when Kafka has lost what was not landed yet, or has less than what was landed."""
    landed = {key: end for key, end in found.landed.items() if key[1] < topics[key[0]].partitions}
    first = brokers.offsets(landed, earliest=True)
    last = brokers.offsets(landed, earliest=False)
    gaps = [f"{t}/{p}: {end} to {first[t, p]}" for (t, p), end in sorted(landed.items()) if first[t, p] > end]
    if gaps:
        raise HaltError(f"Kafka has deleted records that were not landed yet (retention): {_some(gaps)}")
    short = [
        f"{t}/{p}: landed to {end}, ends at {last[t, p]}" for (t, p), end in sorted(landed.items()) if last[t, p] < end
    ]
    if short:
        raise HaltError(f"the topic is shorter than what was landed of it: {_some(short)}")


def _from(starts: Ends, ids: Mapping[str, str]) -> str:
    """A condition in plain comparisons, so that Delta skips files by their statistics."""
    return " or ".join(
        f"(topic_id = '{ids[name]}' and partition = {number} and offset >= {start})"
        for (name, number), start in starts.items()
    )


def _read(spark: SparkSession, lake: str, table: str) -> DataFrame:
    return spark.read.format("delta").load(f"{lake}/{table}")


def _some(items: list[str]) -> str:
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return "; ".join(items[:_SHOWN]) + more
