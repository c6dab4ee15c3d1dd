"""Where a job begins: where the last job ended by the table `batches`.

Never at "earliest" or "latest" for a partition that was landed before: the first would duplicate, the second would lose.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
from headrace_common.record.contract import GapReason
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from headrace_lake.kafka.checkpoint import Range
from headrace_lake.kafka.source import TopicInfo, TopicPartition
from headrace_lake.spark.halt import HaltError
from headrace_lake.spark.literals import quoted
from headrace_lake.tables.append import arrow_rows
from headrace_lake.tables.erasures import with_erased
from headrace_lake.tables.layout import BATCHES, DUPLICATES, EVENTS, GAPS, KEY, QUARANTINE, SCHEMAS
from headrace_lake.tables.transaction_log import live_rows

_EARLIEST = -2  # Spark's number for the first offset that Kafka holds
_SHOWN = 5
CLAIM: Final = -1
"""The number of the batch in a line of `batches` that a claim has added."""

EndOffsets = dict[TopicPartition, int]


@dataclass
class Position:
    """How far the tables are, by partition of the topics that exist now."""

    landed: EndOffsets
    """One past the last offset that `batches` covers; without partitions that were never landed."""
    strays: EndOffsets
    """One past the last offset of rows beyond `landed`, which a job left when shut out; only of partitions with such rows."""
    rows: int = 0
    """How many rows `batches` has."""
    landed_at: Mapping[TopicPartition, int] = field(default_factory=dict)
    """When the landing of the newest batch in `landed` began, in Unix ms."""

    def add(self, ranges: Iterable[Range]) -> None:
        """Counts a batch that `batches` holds."""
        for topic, partition, _, end in ranges:
            self.landed[topic, partition] = end
            self.rows += 1

    def starting(self, topics: Mapping[str, TopicInfo]) -> dict[str, dict[str, int]]:
        """Returns Spark's `startingOffsets` for all partitions of `topics`."""
        return {
            name: {str(number): self.landed.get((name, number), _EARLIEST) for number in range(topic.partitions)}
            for name, topic in topics.items()
        }


@dataclass(frozen=True)
class Coverage:
    """The offsets of the topics that the tables cover, by `batches` and by the accepted gaps."""

    ends: EndOffsets
    """One past the last covered offset, by partition of the topics that exist now."""
    former: Mapping[tuple[str, str, int], int]
    """The same for deleted topics with these names; by (name, Kafka's id, partition)."""
    given_up: frozenset[tuple[str, int | None]]
    """(Kafka's id, partition) of deleted topics whose remaining offsets were accepted as lost."""
    rows: int = 0
    """How many rows `batches` has."""
    faults: tuple[str, ...] = ()
    """Where `batches` contradicts itself."""
    landed_at: Mapping[TopicPartition, int] = field(default_factory=dict)
    """When the landing of the newest batch began, in Unix ms, by partition of the topics that exist now."""

    def check(self) -> None:
        """Raises `HaltError` if rows of `batches` are missing or doubled."""
        if self.faults:
            raise HaltError(
                f"rows of the table {BATCHES} were deleted or doubled: {first_few(list(self.faults))}. Where the tables end"
                f" cannot be told from it. {RESTORE}"
            )


RESTORE: Final = "Restore it (DESCRIBE HISTORY shows its versions, RESTORE TABLE … brings one back), and start again"


def coverage(spark: SparkSession, lake: str, topics: Mapping[str, TopicInfo]) -> Coverage:
    """Returns the offsets of `topics` that the tables cover. Blocks: one query."""
    names = {topic.id: name for name, topic in topics.items()}
    place = ("topic", "topic_id", "partition")
    nothing = sf.lit(None).cast("bigint")
    offsets = (*place, "from", "to")
    landed = live_rows(spark, f"{lake}/{BATCHES}", (*offsets, "number", "landed_at"))
    batches = landed.withColumn("time", sf.unix_millis("landed_at")).select(
        *offsets, "number", "time", sf.lit("").alias("reason")
    )
    accepted = live_rows(spark, f"{lake}/{GAPS}", (*offsets, "reason"))
    accepted = accepted.select(*offsets, nothing.alias("number"), nothing.alias("time"), "reason")
    counts = sf.col("to").isNotNull() | (sf.col("reason") == str(GapReason.RECREATED))
    rows = (
        batches.unionAll(accepted).where(counts).groupBy(*place, "reason")
        .agg(
            sf.min("from").alias("start"), sf.max("to").alias("end"), sf.sum(sf.col("to") - sf.col("from")).alias("length"),
            sf.count(sf.lit(1)).alias("rows"), sf.max("number").alias("number"),
            sf.max(sf.when(sf.col("from") < sf.col("to"), sf.col("time"))).alias("time"),
        )
        .collect()
    )  # fmt: skip
    ends: EndOffsets = {}
    former: dict[tuple[str, str, int], int] = {}
    for row in rows:
        topic, topic_id, number, end = row["topic"], row["topic_id"], row["partition"], row["end"]
        if end is None:
            continue
        if topic_id in names:
            pair = (names[topic_id], number)
            ends[pair] = max(ends.get(pair, 0), end)
        elif topic in topics:
            key = (topic, topic_id, number)
            former[key] = max(former.get(key, 0), end)
    of_batches = [row for row in rows if not row["reason"]]
    return Coverage(
        ends,
        former,
        frozenset((row["topic_id"], row["partition"]) for row in rows if row["reason"] == GapReason.RECREATED),
        sum(row["rows"] for row in of_batches),
        tuple(_faults(rows)),
        {
            (names[row["topic_id"]], row["partition"]): row["time"]
            for row in of_batches
            if row["topic_id"] in names and row["time"] is not None
        },
    )


def _faults(rows: Iterable[Row]) -> Iterator[str]:
    """Returns the faults of `batches`; `rows`: by partition and reason, as `coverage` sums them up."""
    by_place: dict[tuple[str, str, int], list[Row]] = {}
    count = last = 0
    for row in rows:
        if row["end"] is not None:
            by_place.setdefault((row["topic"], row["topic_id"], row["partition"]), []).append(row)
        if not row["reason"]:
            count += row["rows"]
            last = max(last, row["number"])
    for (topic, _, number), parts in sorted(by_place.items()):
        start, end = min(row["start"] for row in parts), max(row["end"] for row in parts)
        length = sum(row["length"] for row in parts)
        if length != end - start:
            what = f"{end - start - length} offsets are missing" if length < end - start else "ranges overlap"
            yield f"{topic}/{number}: {what} between {start} and {end}"
    if last != count:
        yield f"it has {count} rows, and the last one has the number {last}"


def strays(spark: SparkSession, lake: str, landed: EndOffsets, topics: Mapping[str, TopicInfo]) -> EndOffsets:
    """Returns, for partitions with rows beyond `landed`, one past the last offset. Blocks; reads only the newest files."""
    names = {topic.id: name for name, topic in topics.items()}
    starts = {(name, n): landed.get((name, n), 0) for name, topic in topics.items() for n in range(topic.partitions)}
    inside = _from(starts, {name: topic.id for name, topic in topics.items()})
    beyond = places(spark, lake, inside)
    lasts = beyond.groupBy("topic_id", "partition").agg(sf.max("offset")).collect()
    return {(names[topic_id], number): last + 1 for topic_id, number, last in lasts}


def claimed_lines(
    epoch: int, there: Coverage, strays: EndOffsets, firsts: EndOffsets, topics: Mapping[str, TopicInfo]
) -> pa.Table:
    """Returns the lines of `batches` that the claim of `epoch` adds: of partitions that are claimed for the first time, where
    they begin (`firsts`), and of partitions with `strays`. They cover no offset.
    """
    lines = []
    for number, (topic, partition) in enumerate(sorted(firsts.keys() | strays.keys()), there.rows + 1):
        at = there.ends.get((topic, partition), firsts.get((topic, partition), 0))
        line = dict.fromkeys(SCHEMAS[BATCHES].names, 0) | {
            "epoch": epoch, "batch": CLAIM, "topic": topic, "topic_id": topics[topic].id, "partition": partition, "from": at,
            "to": at, "strays": strays.get((topic, partition)), "landed_at": datetime.now(UTC), "number": number,
        }  # fmt: skip
        lines.append(line)
    return arrow_rows(lines, SCHEMAS[BATCHES])


def places(spark: SparkSession, lake: str, inside: str) -> DataFrame:
    """Returns (topic_id, partition, offset, landed_at) of all that has landed, was left out, or was erased; of those `inside`
    (SQL).
    """
    events, rejects, left_out = (rows_in(spark, lake, table, inside) for table in (EVENTS, QUARANTINE, DUPLICATES))
    return events.unionAll(rejects).unionAll(left_out)


def rows_in(spark: SparkSession, lake: str, table: str, inside: str) -> DataFrame:
    """Returns the same of one table."""
    rows = spark.read.format("delta").load(f"{lake}/{table}").where(inside).select(*KEY, "landed_at")
    return with_erased(spark, lake, table, rows, inside)


def without(records: DataFrame, there: DataFrame, ids: Mapping[str, str]) -> DataFrame:
    """Returns Kafka's `records` whose places are not `there`; `ids`: topic -> Kafka's id of it."""
    cases = " ".join(f"when {quoted(name)} then {quoted(topic_id)}" for name, topic_id in ids.items())
    keyed = records.withColumn("topic_id", sf.expr(f"case topic {cases} end"))
    return keyed.join(sf.broadcast(there.select(*KEY)), list(KEY), "left_anti")


def within(ranges: Iterable[Range], ids: Mapping[str, str]) -> str:
    """Returns SQL: a row has its place in `ranges`. Plain comparisons, so that Delta can skip files by their statistics."""
    conditions = (
        f"(topic_id = '{ids[topic]}' and partition = {number} and offset >= {start} and offset < {end})"
        for topic, number, start, end in ranges
    )
    return " or ".join(conditions) or "false"


def _from(starts: EndOffsets, ids: Mapping[str, str]) -> str:
    """Returns a condition of plain comparisons, so that Delta can skip files by their statistics."""
    return " or ".join(
        f"(topic_id = '{ids[name]}' and partition = {number} and offset >= {start})"
        for (name, number), start in starts.items()
    )


def first_few(items: list[str], shown: int = _SHOWN) -> str:
    """Returns the first few of `items` in one line, and how many more there are."""
    more = f" and {len(items) - shown} more" if len(items) > shown else ""
    return "; ".join(items[:shown]) + more
