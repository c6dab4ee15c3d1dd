"""One batch, from Kafka's records to committed rows. This is where exactly once is kept: read `Landing.__call__`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from headrace_common.log import Log
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from headrace_lake import decode, freshness
from headrace_lake.checkpoint import Checkpoint, Range
from headrace_lake.decode import Topics
from headrace_lake.fence import Fence, transaction
from headrace_lake.freshness import Ages
from headrace_lake.halt import HaltError, StoppingError
from headrace_lake.landing_events import Count, EventsLanding, Remembered
from headrace_lake.markers import Markers
from headrace_lake.policy import Policies, Policy
from headrace_lake.quarantine import Quarantine
from headrace_lake.source import Brokers, TopicPartition
from headrace_lake.start import Position, landed_already
from headrace_lake.tables import BATCHES, QUARANTINE, SCHEMAS

_KEY: Final = ("topic_id", "partition", "offset")


@dataclass(frozen=True)
class Landed:
    """What one batch came to."""

    batch: int
    records: int
    events: int
    quarantined: int
    looked_up: int
    seconds: float
    ends: Mapping[TopicPartition, int]
    """One past the last offset landed, of the partitions that the batch held."""
    ages: Ages
    """Of the sound events, at the commit."""
    duplicates: Mapping[str, int] = field(default_factory=dict)
    """Left out, by protocol."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Quarantined, by reason, as far as they were counted."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Left out by a policy, by reason."""
    remembered: Remembered | None = None
    """By what duplicates are told."""


class Landing:
    """Lands batches under one epoch. Called by Spark, one batch at a time.

    `stopping` is asked before a batch begins; `done` hears what it came to; a batch is landed in the context that `alone`
    makes; `between` is called when that is left.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: str,
        *,
        epoch: int,
        fence: Fence,
        checkpoint: Checkpoint,
        brokers: Brokers,
        topics: Topics,
        position: Position,
        policies: Policies,
        events: EventsLanding,
        log: Log,
        stopping: Callable[[], bool],
        done: Callable[[Landed], None],
        alone: Callable[[], AbstractContextManager[None]] = nullcontext,
        between: Callable[[], None] = lambda: None,
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._epoch: Final = epoch
        self._fence = fence
        self._checkpoint = checkpoint
        self._brokers = brokers
        self._topics = topics
        self._position = position
        self._markers = Markers(spark, lake, epoch=epoch, topics=topics, fence=fence)
        self._quarantine = Quarantine(spark, lake, topics=topics, policies=policies)
        self._events = events
        self._log = log
        self._stopping = stopping
        self._done = done
        self._alone = alone
        self._between = between
        self.failure: BaseException | None = None
        """Why the last call raised; Spark hands on no more than its text."""

    def __call__(self, records: DataFrame, batch: int) -> None:
        """Lands the batch `records`, whose number is `batch`, or raises and leaves it to be landed again."""
        try:
            with self._alone():
                self._land(records, batch)
            self._between()
        except BaseException as error:
            self.failure = error
            raise

    def _land(self, records: DataFrame, batch: int) -> None:
        if self._stopping():
            raise StoppingError("the job is stopping")
        began = time.monotonic()
        version = transaction(self._epoch, batch)
        self._fence.check(version)
        ranges = self._checkpoint.ranges(batch)
        self._log.debug("batch begins", batch=batch, ranges=len(ranges))
        if not ranges or self._landed_before(batch, version, ranges):
            return
        self._chained(ranges)
        self._same_topics()
        self._events.plan()
        landed_at = datetime.now(UTC)
        if not self._fence.written(QUARANTINE, version):
            self._quarantine.check(records, ranges, landed_at)

        found = self._events.land(records, ranges, version, landed_at)
        self._log.debug("events written", batch=batch)
        counts = {(self._topics.events, number): count for number, count in found.partitions.items()}
        self._markers.land(records, ranges, found.markers, version, landed_at)
        reasons, skipped = self._land_quarantine(records, ranges, counts, version, landed_at)
        self._log.debug("quarantine written", batch=batch)
        self._fence.write(BATCHES, self._summary(batch, ranges, counts, landed_at), version)
        self._log.debug("batch written", batch=batch)
        self._fence.check(version)

        for topic, partition, _, end in ranges:
            self._position.landed[topic, partition] = end
        self._events.landed(ranges, found)
        duplicates = sum(count.duplicates for count in counts.values())
        sound = sum(count.sound for count in counts.values())
        total = sum(count.records for count in counts.values())
        quarantined = total - sound - sum(count.skipped for count in counts.values())
        took = time.monotonic() - began
        self._done(
            Landed(
                batch, total, sound - duplicates, quarantined, found.looked_up, took,
                ends={(topic, partition): end for topic, partition, _, end in ranges},
                ages=freshness.ages(found.seen, sound - duplicates, took) if found.seen else Ages([]),
                duplicates=found.duplicates,
                reasons=reasons,
                skipped=skipped,
                remembered=self._events.remembered(),
            )
        )  # fmt: skip

    def _land_quarantine(
        self,
        records: DataFrame,
        ranges: list[Range],
        counts: dict[TopicPartition, Count],
        version: int,
        landed_at: datetime,
    ) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Also what `counts` found faulty among the events. Completes `counts`; what was landed, and skipped, by reason."""
        faulty = {place for place, count in counts.items() if count.sound < count.records}
        decoded = self._quarantine.rows(records, ranges, landed_at, faults=bool(faulty))
        if decoded is None:
            return {}, {}
        places = [item[:2] for item in ranges if item.topic == self._topics.quarantine or item[:2] in faulty]
        measures = self._quarantine.measures(places)
        seen, whole = self._write(decoded, measures, ranges, version)
        there = {} if whole else self._quarantine.there(ranges)
        for place, (records_there, skipped) in self._quarantine.measured(places, seen).items():
            count = counts.get(place, Count(records_there))
            if not whole:  # some by another policy perhaps: what counts is what was landed
                skipped = count.records - count.sound - there.get(place, 0)
            counts[place] = count._replace(skipped=skipped)
        return (
            self._quarantine.by_reason(places, seen, Policy.LOG),
            self._quarantine.by_reason(places, seen, Policy.SKIP),
        )

    def _write(
        self, decoded: DataFrame, measures: list[Column], ranges: list[Range], version: int
    ) -> tuple[dict[str, int], bool]:
        """Appends what is wanted of `decoded` to the quarantine table, once; the `measures` over all of `decoded`.

        And whether this very write, and no earlier one, put there what the table has of the batch.
        """
        columns = SCHEMAS[QUARANTINE].names
        if self._fence.written(QUARANTINE, version):  # this batch, in a run that did not live to finish it
            return self._measured(decoded, measures), False
        wanted = decoded.where(self._quarantine.wanted).select(*columns)
        if any(start < self._position.strays.get((topic, number), 0) for topic, number, start, _ in ranges):
            starts = {(topic, number): start for topic, number, start, _ in ranges}
            there = landed_already(self._spark, self._lake, QUARANTINE, starts, self._topics.ids)
            self._log.info("leaves out what an interrupted job has landed already", table=QUARANTINE)
            self._fence.write(QUARANTINE, wanted.join(there, list(_KEY), "left_anti").select(*columns), version)
            return self._measured(decoded, measures), False
        observation = Observation()
        observed = decoded.observe(observation, *measures).where(self._quarantine.wanted).select(*columns)
        if self._fence.write(QUARANTINE, observed, version):
            return dict(observation.get), True
        return self._measured(decoded, measures), False  # nothing was observed: asking for it would wait for ever

    @staticmethod
    def _measured(decoded: DataFrame, measures: list[Column]) -> dict[str, int]:
        """The measures by reading the batch once more: only after a crash."""
        row = decoded.agg(*measures).first()
        return row.asDict() if row is not None else {}

    def _summary(
        self, batch: int, ranges: list[Range], counts: dict[TopicPartition, Count], landed_at: datetime
    ) -> DataFrame:
        moment = f"timestamp'{landed_at:%Y-%m-%d %H:%M:%S.%f}Z'"
        rows = []
        for topic, partition, start, end in ranges:
            records, sound, duplicates, skipped = counts[topic, partition]
            rows.append(
                f"({self._epoch}L, {batch}L, {decode.quoted(topic)}, {decode.quoted(self._topics.ids[topic])}, {partition}, "
                f"{start}L, {end}L, {records}L, {sound - duplicates}L, {duplicates}L, {records - sound - skipped}L, "
                f"{skipped}L, {moment})"
            )
        # as SQL: a frame of Python rows would start Python workers in every batch
        names = ", ".join(f"`{name}`" for name in SCHEMAS[BATCHES].names)
        return self._spark.sql(f"select * from values {', '.join(rows)} as batch({names})").coalesce(1)  # noqa: S608

    def _landed_before(self, batch: int, version: int, ranges: list[Range]) -> bool:
        """Whether `batches` has this batch: the job died before Spark's own note of it. Raises `HaltError` if it was another."""
        if not self._fence.written(BATCHES, version):
            return False
        rows = (
            self._spark.read.format("delta").load(f"{self._lake}/{BATCHES}")
            .where((sf.col("epoch") == self._epoch) & (sf.col("batch") == batch))
            .select("topic", "partition", "from", "to").collect()
        )  # fmt: skip
        if sorted(Range(*row) for row in rows) != ranges:
            raise HaltError(
                f"batch {batch} of the checkpoint {self._checkpoint.path} is not the one that was landed: it is an old copy;"
                " delete it to take over from where the tables end"
            )
        self._log.info("batch was landed before the last stop", batch=batch)
        return True

    def _chained(self, ranges: Iterable[Range]) -> None:
        """Raises `HaltError` when the batch does not begin where the tables end."""
        landed = self._position.landed
        wrong = [
            f"{topic}/{partition}: landed to {landed[topic, partition]}, the batch begins at {start}"
            for topic, partition, start, _ in ranges
            if landed.get((topic, partition), start) != start
        ]
        if wrong:
            raise HaltError(f"the checkpoint and the tables disagree: {'; '.join(wrong)}")

    def _same_topics(self) -> None:
        """Raises `HaltError` when a topic was deleted, or made anew, since the job began."""
        now = self._brokers.topics(self._topics.ids)
        for name, topic_id in self._topics.ids.items():
            if name not in now:
                raise HaltError(f"the topic {name} (id {topic_id}) was deleted")
            if now[name].id != topic_id:
                raise HaltError(
                    f"the topic {name} was deleted and made anew (id {topic_id}, now {now[name].id}): nothing of the new one"
                    " is landed under the old one's offsets; start again to see what is lost"
                )
