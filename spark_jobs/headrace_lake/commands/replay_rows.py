"""Reads and writes the rows of a replay on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from headrace_common.record.contract import DETERMINISTIC, Attribute
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headrace_lake.commands.replay_plan import BatchRange, ReplayResult, Step
from headrace_lake.configuration.settings import LakeProcessSettings
from headrace_lake.kafka.checkpoint import Range
from headrace_lake.kafka.source import Brokers, range_options
from headrace_lake.kafka.start import spans
from headrace_lake.landing.quarantine import Quarantine
from headrace_lake.rows import decode
from headrace_lake.rows.decode import FAULT, Topics
from headrace_lake.spark.literals import OURS
from headrace_lake.tables.erasures import ERASED, ErasedIds
from headrace_lake.tables.fence import Fence
from headrace_lake.tables.layout import BATCHES, DUPLICATES, EVENTS, KEY, QUARANTINE, SCHEMAS
from headrace_lake.tables.on_spark import Tables, without

_WANTED: Final = f"{OURS}wanted"
"""Column of rows: they land."""

_COPY, _COPY_TIME, _COPY_PLACE, _RESEND = (f"{OURS}{name}" for name in ("copy", "copy_time", "copy_place", "resend"))


class ReplayRows:
    """The rows of one replay. Every call blocks and runs queries."""

    def __init__(self, tables: Tables, brokers: Brokers, settings: LakeProcessSettings) -> None:
        self.tables = tables
        self.brokers = brokers
        self.settings = settings
        self._fence = Fence(tables)
        self._erased = ErasedIds(tables.spark, tables.lake)

    def lines(self, since: datetime, topics: Iterable[str]) -> Iterator[BatchRange]:
        """Yields the lines of `batches` of `topics` that landed at `since` or later, in the order of landing."""
        rows = self.tables.read(BATCHES).where(sf.col("topic").isin([*topics]) & sf.expr("`from` < `to`"))
        rows = rows.where(sf.col("landed_at") >= sf.timestamp_micros(sf.lit(round(since.timestamp() * 1_000_000))))
        for row in rows.orderBy("epoch", "batch", "topic_id", "partition", "from").toLocalIterator():
            yield BatchRange(
                row["topic"], row["topic_id"], row["partition"], row["from"], row["to"], row["landed_at"].astimezone(UTC),
                first_held=row["from"],
            )  # fmt: skip

    def restore(self, topics: Topics, step: Step, *, apply: bool, check: Callable[[], None]) -> ReplayResult:
        """Lands the records of `step` that no table has, each in one of three tables. Calls `check` between reading and writing;
        without `apply`, it only counts.
        """
        self._erased.refresh()
        ranges = [Range(topic, partition, *pair) for (topic, partition), pair in sorted(step.ranges.items())]
        options = range_options(self.settings.kafka, step.ranges)
        records = self.tables.spark.read.format("kafka").options(**options).load()
        missing = without(records, self.tables.places(spans(ranges, topics.ids)), topics.ids).persist()
        try:
            events, rejects = self._events(missing, topics, step), self._rejects(missing, topics, step, ranges)
            of_events, of_rejects = (
                {row[_WANTED]: row["count"] for row in rows.groupBy(_WANTED).count().collect()}
                for rows in (events, rejects)
            )
            done = ReplayResult(
                events=of_events.get(True, 0),
                quarantined=of_rejects.get(True, 0),
                left_out=of_events.get(False, 0) + of_rejects.get(False, 0),
            )
            check()
            if apply:
                self._write(events, rejects, step.version, done)
        finally:
            missing.unpersist()
        return done

    def _write(self, events: DataFrame, rejects: DataFrame, version: int, done: ReplayResult) -> None:
        names = SCHEMAS[DUPLICATES].names
        again = rejects.withColumn("event_id", sf.col("id")).where(~sf.col(_WANTED)).select(*names)
        again = events.where(~sf.col(_WANTED)).select(*names).unionAll(again)
        for table, rows, count in (
            (DUPLICATES, again, done.left_out),  # first: what is a resend is asked of the events table
            (EVENTS, events.where(_WANTED), done.events),
            (QUARANTINE, rejects.where(_WANTED), done.quarantined),
        ):
            if count:
                self._fence.write(table, rows.select(*SCHEMAS[table].names), version)

    def _events(self, missing: DataFrame, topics: Topics, step: Step) -> DataFrame:
        """Returns the events among the missing records, with `_WANTED`."""
        events = decode.events(missing, topics, step.landed_at).where(f"{FAULT} is null")
        events = self._erased.marked(events, "event_id")
        events = without_resends(self.tables, events, self.settings.lake.horizon)
        if self._erased.any():
            events = events.withColumn(_WANTED, sf.col(_WANTED) & ~sf.col(ERASED))
        return events

    def _rejects(self, missing: DataFrame, topics: Topics, step: Step, ranges: list[Range]) -> DataFrame:
        """Returns the missing records that go to quarantine, with `_WANTED`."""
        quarantine = Quarantine(topics, self._erased)
        rows = quarantine.rows(missing, ranges, step.landed_at, faults=True)
        assert rows is not None
        return rows.withColumn(_WANTED, quarantine.wanted)


def without_resends(tables: Tables, events: DataFrame, horizon: float) -> DataFrame:
    """Sets `_WANTED` to false for an event that is sent again, if a copy is in the table or earlier in the step.

    Also in a range that had no resends: a copy may have landed since somebody deleted the event.
    """
    micros = sf.unix_micros("received_time")
    bounds = events.agg(sf.min(micros).alias("low"), sf.max(micros).alias("high")).first()
    if not horizon or bounds is None or bounds["low"] is None:
        return events.withColumn(_WANTED, sf.lit(True))
    low, high = (sf.timestamp_micros(sf.lit(bounds[side])) for side in ("low", "high"))
    reach = sf.expr(f"make_dt_interval(0, 0, 0, {horizon:.6f})")
    time_ = sf.col("received_time")
    recognisable = sf.col("event_id").startswith(DETERMINISTIC.decode()) | (
        sf.get_json_object("attributes", f"$.{Attribute.REPUBLISHED}") == "true"
    )
    resends = events.where(recognisable)
    landed = (
        tables.read(EVENTS)
        .where((time_ >= low - reach) & (time_ <= high + reach))
        .select(sf.col("event_id").alias(_COPY), time_.alias(_COPY_TIME))
    )  # fmt: skip
    earlier = events.select(
        sf.col("event_id").alias(_COPY),
        time_.alias(_COPY_TIME),
        sf.struct("received_time", *KEY).alias(_COPY_PLACE),
    )
    same = (sf.col("event_id") == sf.col(_COPY)) & (time_ <= sf.col(_COPY_TIME) + reach)
    same &= time_ >= sf.col(_COPY_TIME) - reach
    before = sf.struct("received_time", *KEY) > sf.col(_COPY_PLACE)
    found = (
        resends.join(landed, same, "left_semi").select(*KEY)
        .unionAll(resends.join(earlier, same & before, "left_semi").select(*KEY))
        .distinct().withColumn(_RESEND, sf.lit(True))
    )  # fmt: skip
    return events.join(found, list(KEY), "left").withColumn(_WANTED, sf.col(_RESEND).isNull())
