"""The lake's tables by Spark and Delta: what decisions ask of them, and what they do to them.

The answers are plain values, so that a decision needs no Spark. The model of `tests/lake` has the same methods over lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Final, NamedTuple

import pyarrow as pa
from headrace_common.record.contract import GapReason
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace_lake.spark.jvm import java_class
from headrace_lake.spark.literals import quoted
from headrace_lake.spark.storage import Storage
from headrace_lake.tables.append import DELTA, append, begun
from headrace_lake.tables.erasures import with_erased
from headrace_lake.tables.layout import BATCHES, DAY, DUPLICATES, EVENTS, GAPS, KEY, LOG_AGE, QUARANTINE
from headrace_lake.tables.properties import APP_ID
from headrace_lake.tables.transaction_log import Ranges, live_rows, newest

ENDLESS: Final = (1 << 63) - 1
"""No offset is beyond it."""

_TRANSACTION: Final = "spark.databricks.delta.write.txn"
"""How the options begin that give a statement of Delta a transaction identifier."""


class Span(NamedTuple):
    """Offsets of one partition, from `start` up to but not including `end`."""

    topic_id: str
    partition: int
    start: int
    end: int = ENDLESS


class Sums(NamedTuple):
    """The lines of `batches` of one partition, or its gaps of one reason, summed up."""

    topic: str
    topic_id: str
    partition: int
    reason: str
    """Empty for `batches`."""
    end: int | None
    """None: unknown, of a topic that no longer exists."""
    number: int
    """The last of `batches`; 0 of gaps."""
    time: int | None = None
    """When the landing of its newest batch began, in Unix ms; None if no line covers an offset."""


class Line(NamedTuple):
    """A line of `batches`."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    landed_at: datetime
    epoch: int
    strays: int | None
    number: int


class Held(NamedTuple):
    """The records of one partition that have landed, were left out, or were erased."""

    rows: int
    last: int
    """Their last offset."""
    since: datetime
    """The earliest `landed_at` among them."""


class Tables:
    """The tables of one lake. Every call blocks on storage, and most run a query."""

    def __init__(self, spark: SparkSession, lake: str) -> None:
        self.spark = spark
        self.lake = lake
        self.storage = Storage(spark)

    def path(self, name: str) -> str:
        """Returns where the table `name` is."""
        return f"{self.lake}/{name}"

    def read(self, name: str) -> DataFrame:
        """Returns the rows of the table `name`."""
        return self.spark.read.format("delta").load(self.path(name))

    def append(
        self,
        name: str,
        rows: DataFrame | pa.Table | None,
        version: int,
        token: str,
        latest: Callable[[], int],
        accept: Callable[[Sequence[str]], None] | None = None,
        *,
        app: str = APP_ID,
    ) -> None:
        """Appends `rows` to the table `name` under a transaction version of `app`; see `append.append`."""
        append(self.spark, app, self.path(name), rows, version, token, latest, accept)

    def sums(self) -> list[Sums]:
        """Returns what `batches` and the accepted gaps cover, by partition. One query."""
        place = ("topic", "topic_id", "partition")
        nothing = sf.lit(None).cast("bigint")
        landed = live_rows(self.spark, self.path(BATCHES), (*place, "from", "to", "number", "landed_at"))
        time = sf.when(sf.col("from") < sf.col("to"), sf.unix_millis("landed_at")).alias("time")
        batches = landed.select(*place, "to", "number", time, sf.lit("").alias("reason"))
        accepted = live_rows(self.spark, self.path(GAPS), (*place, "to", "reason"))
        accepted = accepted.select(*place, "to", sf.lit(0).alias("number"), nothing.alias("time"), "reason")
        counts = sf.col("to").isNotNull() | (sf.col("reason") == str(GapReason.RECREATED))
        rows = (
            batches.unionAll(accepted).where(counts).groupBy(*place, "reason")
            .agg(sf.max("to"), sf.max("number"), sf.max("time")).collect()
        )  # fmt: skip
        return [Sums(*row) for row in rows]

    def lines(self) -> Iterator[Line]:
        """Yields the lines of `batches`, the last one first. A query, whose rows come bit by bit."""
        columns = ("topic", "topic_id", "partition", "from", "to", "landed_at", "epoch", "strays", "number")
        for row in self.read(BATCHES).select(*columns).orderBy(sf.desc("number")).toLocalIterator():
            line = Line(*row)
            yield line._replace(landed_at=line.landed_at.astimezone(UTC))

    def last_gap(self) -> int:
        """Returns the epoch of the last gap that was accepted; 0 without any. One query."""
        ((epoch,),) = self.read(GAPS).agg(sf.max("epoch")).collect()
        return epoch or 0

    def delete_lines(self, first: int, version: int) -> None:
        """Deletes the lines of `batches` with the number `first` or a higher one, under the transaction `version`.

        Like `append`, it does nothing if the table has this version or a later one.
        """
        settings = {f"{_TRANSACTION}AppId": APP_ID, f"{_TRANSACTION}Version": str(version)}
        for name, value in settings.items():
            self.spark.conf.set(name, value)
        try:
            self.spark.sql(f"DELETE FROM delta.`{self.path(BATCHES)}` WHERE number >= {first}")  # noqa: S608
        finally:
            for name in settings:
                self.spark.conf.unset(name)

    def held(self, spans: Sequence[Span]) -> dict[tuple[str, int], Held]:
        """Returns what the tables hold of `spans`, by Kafka's id of the topic and partition, where they hold anything."""
        return held_in(self.places(spans))

    def places(self, spans: Sequence[Span]) -> DataFrame:
        """Returns (topic_id, partition, offset, landed_at) of all in `spans` that has landed, was left out, or was erased."""
        inside = within(spans)

        def of(name: str) -> DataFrame:
            rows = live_rows(self.spark, self.path(name), (*KEY, "landed_at"), lambda ranges: may_hold(ranges, spans))
            return with_erased(self.spark, self.lake, name, rows.where(inside), inside)

        return of(EVENTS).unionAll(of(QUARANTINE)).unionAll(of(DUPLICATES))

    def newest_event(self) -> int:
        """Returns the latest timestamp, in ms, of the events table's rows, by its log; 0 if no file has one."""
        return newest(self.storage, self.path(EVENTS), "received_time")

    def delete_days(self, name: str, first: date) -> None:
        """Deletes the days before `first` from the table `name`. The commit reads or writes no data file."""
        self.spark.sql(f"DELETE FROM delta.`{self.path(name)}` WHERE {DAY} < '{first.isoformat()}'")  # noqa: S608

    def clean_log(self, name: str) -> None:
        """Deletes the commits of the table `name` that are older than `layout.LOG_AGE`, and before a checkpoint.

        Delta's own clean-up, which it would do within a batch's commit (`layout.PROPERTIES` forbid that), and by whole days.
        """
        hours = getattr(java_class(self.spark, f"{DELTA}.TruncationGranularity$"), "MODULE$").HOUR()
        milliseconds = java_class(self.spark, "java.util.OptionalLong").of(LOG_AGE * 1000)
        age = java_class(self.spark, "scala.jdk.javaapi.OptionConverters").toScala(milliseconds)
        with begun(self.spark, self.path(name)) as transaction:
            nothing = java_class(self.spark, "scala.Option").empty()
            transaction.deltaLog().cleanUpExpiredLogs(transaction.snapshot(), nothing, age, hours)

    def vacuum(self, name: str, age: float) -> None:
        """Deletes the files of the table `name` that no version of the last `age` seconds needs."""
        self.spark.sql(f"VACUUM delta.`{self.path(name)}` RETAIN {age / 3600:.6f} HOURS")


def held_in(there: DataFrame) -> dict[tuple[str, int], Held]:
    """Returns the places `there` by partition."""
    counted = there.groupBy("topic_id", "partition").agg(
        sf.count(sf.lit(1)), sf.max("offset"), sf.min("landed_at")
    )  # fmt: skip
    return {(row[0], row[1]): Held(row[2], row[3], row[4].astimezone(UTC)) for row in counted.collect()}


def may_hold(ranges: Ranges, spans: Iterable[Span]) -> bool:
    """Returns whether a file of these `ranges` may have rows in `spans`."""
    if not ranges.keys() >= {*KEY}:
        return True
    topic_ids, numbers, offsets = (ranges[name] for name in KEY)
    return any(
        topic_ids[0] <= span.topic_id <= topic_ids[1]
        and numbers[0] <= span.partition <= numbers[1]
        and offsets[0] < span.end
        and span.start <= offsets[1]
        for span in spans
    )


def within(spans: Iterable[Span]) -> str:
    """Returns SQL: a row has its place in `spans`. Plain comparisons, so that Parquet's reader can skip by its statistics."""
    conditions = (
        f"(topic_id = {quoted(topic_id)} and partition = {number} and offset >= {start} and offset < {end})"
        for topic_id, number, start, end in spans
    )
    return " or ".join(conditions) or "false"


def without(records: DataFrame, there: DataFrame, ids: Mapping[str, str]) -> DataFrame:
    """Returns Kafka's `records` whose places are not `there`; `ids`: topic -> Kafka's id of it."""
    cases = " ".join(f"when {quoted(name)} then {quoted(topic_id)}" for name, topic_id in ids.items())
    keyed = records.withColumn("topic_id", sf.expr(f"case topic {cases} end"))
    return keyed.join(sf.broadcast(there.select(*KEY)), list(KEY), "left_anti")
