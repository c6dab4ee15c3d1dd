"""Replay: lands again the records that the tables lack within ranges that were landed before.

Not a stream: each step reads the ranges of a few rows of `batches`. A record whose (topic_id, partition, offset) is in a table
is never touched. A missing record lands as a batch would land it today: a deleted row comes back. A resend stays left out while
a copy of it is in the table. An erased record never comes back (`tables.erasures`).

A replay claims an epoch, so a running job stops. Each finished step is exact; if a replay was killed, run it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
from headrace_common.operations.log import Log
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace_lake.commands import replay_plan, replay_rows
from headrace_lake.commands.replay_plan import BatchRange, ReplayRequest, Unreplayable, condition, merged, steps
from headrace_lake.commands.replay_rows import WANTED
from headrace_lake.configuration.settings import LakeProcessSettings, location
from headrace_lake.kafka.checkpoint import Range
from headrace_lake.kafka.source import Brokers, TopicInfo, TopicPartition, range_options
from headrace_lake.kafka.start import claimed_lines, coverage, places, strays, within, without
from headrace_lake.landing.quarantine import Quarantine
from headrace_lake.rows import decode
from headrace_lake.rows.decode import FAULT, Topics
from headrace_lake.spark.causes import root_cause
from headrace_lake.spark.halt import HaltError, KafkaAwayError
from headrace_lake.spark.storage import Storage
from headrace_lake.tables import layout
from headrace_lake.tables.erasures import ERASED, ErasedIds
from headrace_lake.tables.fence import REPLAYED, Fence, transaction
from headrace_lake.tables.layout import BATCHES, DUPLICATES, EVENTS, QUARANTINE, SCHEMAS

_1970: Final = datetime(1970, 1, 1, tzinfo=UTC)
_GONE: Final = "Kafka no longer holds it"
_DROPPED: Final = "the tables no longer keep that day: LAKE__RETENTION_DAYS"
_RECREATED: Final = "the topic was recreated"


@dataclass(frozen=True)
class ReplayResult:
    """The result of a replay, or of a step."""

    offsets: int = 0
    events: int = 0
    quarantined: int = 0
    left_out: int = 0  # rows of the table of duplicates

    def __add__(self, other: ReplayResult) -> ReplayResult:
        return ReplayResult(
            self.offsets + other.offsets,
            self.events + other.events,
            self.quarantined + other.quarantined,
            self.left_out + other.left_out,
        )


class Replay:
    """One replay. Calls `stopping` before each step."""

    def __init__(
        self,
        spark: SparkSession,
        settings: LakeProcessSettings,
        request: ReplayRequest,
        *,
        dry_run: bool,
        log: Log,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._request = request
        self._dry_run = dry_run
        self._log = log
        self._stopping = stopping
        self._lake = location(settings.lake.path)
        self._storage = Storage(spark)
        self._brokers = Brokers(spark, settings.kafka)
        self._fence = Fence(spark, self._lake)
        self._unreplayable = Unreplayable()
        self._epoch = 0

    def run(self) -> ReplayResult:
        """Replays, logs one line per step and one at the end, and returns the sum.

        Raises `HaltError` without tables or topics, if Kafka is away, or if another job takes over. Finished steps stay.
        """
        kafka = self._settings.kafka
        try:
            if not self._storage.exists(f"{self._lake}/{BATCHES}/_delta_log"):
                raise HaltError(f"there are no tables in {self._lake}: nothing was landed that a replay could restore")
            names = (kafka.events_topic, kafka.quarantine_topic)
            topics = self._brokers.topics(names)
            if missing := [name for name in names if name not in topics]:
                raise HaltError(f"there is no topic {' and no topic '.join(missing)}")
            self._check_places(topics)
            if not self._dry_run:
                self._claim(topics)
            return self._replay(topics)
        except KafkaAwayError as error:
            raise HaltError(str(error)) from error
        finally:
            self._brokers.close()

    def _check_places(self, topics: Mapping[str, TopicInfo]) -> None:
        for topic, number in {**(self._request.starts or {}), **(self._request.ends or {})}:
            if topic not in topics:
                raise HaltError(f"there is no topic {topic} to replay; there is: {', '.join(topics)}")
            if not 0 <= number < topics[topic].partitions:
                raise HaltError(f"{topic} has no partition {number}: it has {topics[topic].partitions}")

    def _claim(self, topics: Mapping[str, TopicInfo]) -> None:
        """Shuts out every job."""
        layout.create(self._storage, self._lake)

        def settle(epoch: int) -> Mapping[str, pa.Table]:
            there = coverage(self._spark, self._lake, topics)
            left = strays(self._spark, self._lake, there.ends, topics)
            return {BATCHES: claimed_lines(epoch, there, left, {}, topics)} if left else {}

        self._epoch = self._fence.claim(settle)
        self._log.info("claimed the tables", epoch=self._epoch)

    def _replay(self, topics: Mapping[str, TopicInfo]) -> ReplayResult:
        kafka = self._settings.kafka
        ids = {name: topic.id for name, topic in topics.items()}
        self._topics = Topics(kafka.events_topic, kafka.quarantine_topic, ids)
        self._erased = ErasedIds(self._spark, self._lake)
        self._quarantine = Quarantine(self._topics, self._erased)
        total = ReplayResult()
        for number, step in enumerate(steps(self._batch_ranges(topics), self._settings.lake.batch_records)):
            if self._stopping():
                self._log.warning("replay stopped early: run it again for the rest")
                break
            try:
                total += self._step(step, number)
            except (PySparkException, Py4JJavaError) as error:  # as where Kafka deletes records meanwhile
                raise HaltError(f"{root_cause(error)}: run it again for the rest") from error
        for ranges in self._unreplayable:
            self._log.warning("cannot replay", offsets=ranges)
        self._log.info(
            "would replay" if self._dry_run else "replayed all",
            offsets=total.offsets, events=total.events, quarantined=total.quarantined, left_out=total.left_out,
        )  # fmt: skip
        return total

    def _batch_ranges(self, topics: Mapping[str, TopicInfo]) -> Iterator[BatchRange]:
        """Yields the requested rows of `batches` that can be replayed; the others go to `_unreplayable`."""
        every = [(name, number) for name, topic in topics.items() for number in range(topic.partitions)]
        request = self._request
        since = {} if request.since is None else self._brokers.offsets_since(every, request.since)
        until = {} if request.until is None else self._brokers.offsets_since(every, request.until)
        starts: dict[TopicPartition, int | None] = {**since, **(request.starts or {})}
        ends: dict[TopicPartition, int | None] = {**until, **(request.ends or {})}
        earliest = self._brokers.offsets(every, earliest=True)
        ids = {topic.id for topic in topics.values()}
        where = condition(request, topics, earliest, starts, ends)
        kept = self._kept_from()
        rows = self._spark.read.format("delta").load(f"{self._lake}/{BATCHES}").where(where)
        for row in rows.orderBy("epoch", "batch", "topic_id", "partition", "from").toLocalIterator():
            at = earliest.get((row["topic"], row["partition"]), 0) if row["topic_id"] in ids else None
            batch_range = BatchRange(
                row["topic"], row["topic_id"], row["partition"], row["from"], row["to"],
                row["to"] if at is None else min(max(row["from"], at), row["to"]),
                row["landed_at"],
            )  # fmt: skip
            if kept is not None and batch_range.landed_at.astimezone(UTC) < kept:
                self._unreplayable.add(batch_range, batch_range.start, batch_range.end, _DROPPED)
            elif self._can(batch_range, known=at is not None):
                yield batch_range

    def _kept_from(self) -> datetime | None:
        """Returns the time before which batches may lack rows that the tables' retention dropped on purpose."""
        latest = max(self._fence.kept_from(table) for table in (EVENTS, QUARANTINE))
        return None if latest < 0 else _1970 + timedelta(days=latest)

    def _can(self, batch_range: BatchRange, *, known: bool) -> bool:
        if not known:
            self._unreplayable.add(batch_range, batch_range.start, batch_range.end, _RECREATED)
        elif batch_range.first_held > batch_range.start:
            self._unreplayable.add(batch_range, batch_range.start, batch_range.first_held, _GONE)
        return known and batch_range.first_held < batch_range.end

    def _step(self, step: list[BatchRange], number: int) -> ReplayResult:
        began = time.monotonic()
        version = transaction(self._epoch, REPLAYED + number)
        if not self._dry_run:
            self._fence.check(version)
        self._erased.refresh()
        ranges = merged(step)
        spans = [Range(topic, partition, *pair) for (topic, partition), pair in sorted(ranges.items())]
        records = self._spark.read.format("kafka").options(**range_options(self._settings.kafka, ranges)).load()
        there = places(self._spark, self._lake, within(spans, self._topics.ids))
        missing = without(records, there, self._topics.ids).persist()
        try:
            done = self._land(spans, missing, version, replay_plan.landing_time(step, datetime.now(UTC)))
        finally:
            missing.unpersist()
        done = replace(done, offsets=sum(end - start for start, end in ranges.values()))
        self._log.info(
            "would replay" if self._dry_run else "replayed",
            step=number, offsets=done.offsets, events=done.events, quarantined=done.quarantined,
            left_out=done.left_out, seconds=round(time.monotonic() - began, 2),
        )  # fmt: skip
        return done

    def _land(self, spans: list[Range], missing: DataFrame, version: int, landed_at: datetime) -> ReplayResult:
        """Lands the records that are `missing` of `spans`, each in one of three tables."""
        events, rejects = self._rows(spans, missing, landed_at)
        of_events, of_rejects = ({row[WANTED]: row["count"] for row in rows.groupBy(WANTED).count().collect()}
                                 for rows in (events, rejects))  # fmt: skip
        done = ReplayResult(
            events=of_events.get(True, 0), quarantined=of_rejects.get(True, 0),
            left_out=of_events.get(False, 0) + of_rejects.get(False, 0),
        )  # fmt: skip
        self._check_topics()
        if self._dry_run:
            return done
        names = SCHEMAS[DUPLICATES].names
        again = rejects.withColumn("event_id", sf.col("id")).where(~sf.col(WANTED)).select(*names)
        again = events.where(~sf.col(WANTED)).select(*names).unionAll(again)
        for table, rows, count in (
            (DUPLICATES, again, done.left_out),  # first: what is a resend is asked of the events table
            (EVENTS, events.where(WANTED), done.events),
            (QUARANTINE, rejects.where(WANTED), done.quarantined),
        ):
            if count:
                self._fence.write(table, rows.select(*SCHEMAS[table].names), version)
                self._log.debug("restored", table=table)
        return done

    def _check_topics(self) -> None:
        """Raises `HaltError` if a topic was recreated: the records just read may be of the new one."""
        now = self._brokers.topics(self._topics.ids)
        for name, topic_id in self._topics.ids.items():
            if name not in now or now[name].id != topic_id:
                raise HaltError(f"the topic {name} was deleted, or recreated, meanwhile: start again")

    def _rows(self, spans: list[Range], missing: DataFrame, landed_at: datetime) -> tuple[DataFrame, DataFrame]:
        """Returns the missing records as rows of the two tables, with `WANTED`."""
        events = decode.events(missing, self._topics, landed_at).where(f"{FAULT} is null")
        events = self._erased.marked(events, "event_id")
        horizon = self._settings.lake.horizon
        if horizon:
            events = replay_rows.without_resends(self._spark, self._lake, events, horizon)
        else:
            events = events.withColumn(WANTED, sf.lit(True))
        if self._erased.any():
            events = events.withColumn(WANTED, sf.col(WANTED) & ~sf.col(ERASED))
        rows = self._quarantine.rows(missing, spans, landed_at, faults=True)
        assert rows is not None
        return events, rows.withColumn(WANTED, self._quarantine.wanted)
