"""Lands one batch, from Kafka's records to committed rows. `Landing._land` is where exactly once is decided."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as sf

from headrace_lake.configuration.reasons import OTHER
from headrace_lake.kafka.checkpoint import Checkpoint, Range
from headrace_lake.kafka.epoch import Epoch
from headrace_lake.kafka.source import Brokers, TopicPartition
from headrace_lake.kafka.start import places, within, without
from headrace_lake.landing import freshness
from headrace_lake.landing.freshness import Ages
from headrace_lake.landing.gathered import gathered
from headrace_lake.landing.landing_events import DedupStatus, EventsLanding
from headrace_lake.landing.left_out import LeftOut, read
from headrace_lake.landing.left_out import rows as left_out_rows
from headrace_lake.landing.quarantine import RECORDS, Quarantine
from headrace_lake.rows.keyed_counts import counts as counts_of
from headrace_lake.spark.halt import HaltError, StoppingError
from headrace_lake.tables.append import arrow_rows
from headrace_lake.tables.fence import transaction
from headrace_lake.tables.layout import BATCHES, DUPLICATES, QUARANTINE, SCHEMAS

PROTOCOLS: Final = ("lumberjack", "forward", "courier", "logjam", "segment")
"""Protocols with a label of their own in metrics; every other lands as well, and is counted as `other`."""


@dataclass(frozen=True)
class BatchResult:
    """The result of one batch."""

    batch: int
    records: int
    events: int
    quarantined: int
    looked_up: int
    seconds: float
    ends: Mapping[TopicPartition, int]
    """One past the last landed offset, by partition of the batch."""
    ages: Ages
    """Ages of the landed events at the commit."""
    newest: int | None = None
    """The latest Kafka timestamp of the events, in ms; None without events."""
    duplicates: Mapping[str, int] = field(default_factory=dict)
    """Resends left out, by protocol."""
    erased: int = 0
    """How many of the resends were erased before."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Quarantined rows, by reason."""
    dedup_status: DedupStatus | None = None
    """How well duplicates are recognised now."""


@dataclass(frozen=True)
class LeftBehind:
    """The records of a batch that a job which was shut out has landed or left out."""

    places: DataFrame
    counts: Mapping[TopicPartition, int]
    since: datetime | None
    """The earliest `landed_at` among them."""


@dataclass(frozen=True)
class QuarantineCounts:
    """Counts of a batch's records for quarantine."""

    records: Mapping[int, int] = field(default_factory=dict)
    """Of the quarantine topic, by partition."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Rows that landed, of both topics, by reason."""
    left_out: Sequence[LeftOut] = ()
    """Records that were erased before."""


def described(batch: int, epoch: int, ranges: Sequence[Range]) -> str:
    """Returns the name of a batch's jobs on Spark's pages."""
    offsets = sum(item.end - item.start for item in ranges)
    partitions = "partition" if len(ranges) == 1 else "partitions"
    return f"headrace: batch {batch} of epoch {epoch}, {offsets:,} offsets of {len(ranges)} {partitions}"


class Landing:
    """Lands batches under one epoch. Spark calls it with one batch at a time.

    It calls `stopping` before each batch and `on_landed` with the batch's result.
    """

    def __init__(
        self,
        epoch: Epoch,
        *,
        checkpoint: Checkpoint,
        brokers: Brokers,
        events: EventsLanding,
        stopping: Callable[[], bool],
        on_landed: Callable[[BatchResult], None],
    ) -> None:
        self._epoch = epoch
        self._checkpoint = checkpoint
        self._brokers = brokers
        self._quarantine = Quarantine(epoch.topics, events.erased)
        self._events = events
        self._stopping = stopping
        self._on_landed = on_landed
        self.failure: BaseException | None = None
        """The error of the last call that failed; Spark passes on only its text."""

    def __call__(self, records: DataFrame, batch: int) -> None:
        """Lands `records` as the batch number `batch`. If this raises, the query ends, and the next epoch lands them."""
        try:
            self._land(records, batch)
        except BaseException as error:
            self.failure = error
            raise

    def _land(self, records: DataFrame, batch: int) -> None:
        if self._stopping():
            raise StoppingError("the job is stopping")
        began = time.monotonic()
        version = transaction(self._epoch.number, batch)
        self._epoch.fence.check(version)
        ranges = self._checkpoint.ranges(batch)
        self._epoch.log.debug("batch begins", batch=batch, ranges=len(ranges))
        if not ranges:
            return
        self._check_contiguous(ranges)
        self._check_topics()
        self._epoch.spark.sparkContext.setJobDescription(described(batch, self._epoch.number, ranges))
        self._events.erased.refresh()
        records = gathered(records, ranges)
        landed_at = datetime.now(UTC)
        left = self._left_behind(ranges)
        rest = records if left is None else without(records, left.places, self._epoch.topics.ids)

        found = self._events.land(rest, ranges, version, landed_at)
        self._epoch.log.debug("events written", batch=batch)
        quarantined = self._land_quarantine(rest, ranges, found.faulty, version, landed_at)
        self._epoch.log.debug("quarantine written", batch=batch)
        if left_out := [*found.left_out, *quarantined.left_out]:
            self._epoch.fence.write(DUPLICATES, left_out_rows(left_out, landed_at), version)
        counts = Counter({(self._epoch.topics.events, number): count for number, count in found.records.items()})
        counts.update({(self._epoch.topics.quarantine, number): count for number, count in quarantined.records.items()})
        since = landed_at
        if left is not None:
            counts.update(left.counts)
            since = min(since, left.since or since)
            left.places.unpersist()
        self._epoch.fence.write(BATCHES, self._summary(batch, ranges, counts, since), version)
        self._epoch.log.debug("batch written", batch=batch)
        self._epoch.fence.check(version)

        self._epoch.position.add(ranges)
        took = time.monotonic() - began
        self._on_landed(
            BatchResult(
                batch, counts.total(), found.events, sum(quarantined.reasons.values()), found.looked_up, took,
                ends={(topic, partition): end for topic, partition, _, end in ranges},
                ages=freshness.ages(found.ages, took) if found.ages else Ages([]),
                newest=found.newest,
                duplicates=Counter(each.protocol if each.protocol in PROTOCOLS else OTHER for each in found.left_out),
                erased=found.erased,
                reasons=quarantined.reasons,
                dedup_status=self._events.dedup_status(),
            )
        )  # fmt: skip

    def _left_behind(self, ranges: list[Range]) -> LeftBehind | None:
        """Returns the records of `ranges` that a job which was shut out has landed or left out; None if there cannot be any."""
        if not self._epoch.among_strays(ranges):
            return None
        self._epoch.log.info("rows of an interrupted job left out")
        inside = within(ranges, self._epoch.topics.ids)
        there = places(self._epoch.spark, self._epoch.lake, inside).persist()
        names = {topic_id: name for name, topic_id in self._epoch.topics.ids.items()}
        counted = there.groupBy("topic_id", "partition").agg(sf.count(sf.lit(1)), sf.min("landed_at")).collect()
        since = min((row[3].astimezone(UTC) for row in counted), default=None)
        return LeftBehind(there, {(names[row[0]], row[1]): row[2] for row in counted}, since)

    def _land_quarantine(
        self, records: DataFrame, ranges: list[Range], faulty: int, version: int, landed_at: datetime
    ) -> QuarantineCounts:
        """Lands the quarantine topic's records, and the `faulty` ones among the events."""
        decoded = self._quarantine.rows(records, ranges, landed_at, faults=bool(faulty))
        if decoded is None:
            return QuarantineCounts()
        observation = Observation()
        rows = decoded.observe(observation, *self._quarantine.measures()).where(self._quarantine.wanted)
        self._epoch.fence.write(QUARANTINE, rows.select(*SCHEMAS[QUARANTINE].names), version)
        seen = dict(observation.get)
        return QuarantineCounts(counts_of(seen[RECORDS]), self._quarantine.by_reason(seen), read(seen))

    def _summary(
        self, batch: int, ranges: list[Range], counts: Mapping[TopicPartition, int], landed_at: datetime
    ) -> pa.Table:
        rows = [
            {
                "epoch": self._epoch.number, "batch": batch, "topic": topic, "topic_id": self._epoch.topics.ids[topic],
                "partition": partition, "from": start, "to": end, "records": counts[topic, partition],
                "landed_at": landed_at, "strays": None, "number": number,
            }
            for number, (topic, partition, start, end) in enumerate(ranges, self._epoch.position.rows + 1)
        ]  # fmt: skip
        return arrow_rows(rows, SCHEMAS[BATCHES])

    def _check_contiguous(self, ranges: Iterable[Range]) -> None:
        """Raises `HaltError` if the batch does not begin where the tables end."""
        landed = self._epoch.position.landed
        wrong = [
            f"{topic}/{partition}: landed to {landed[topic, partition]}, the batch begins at {start}"
            for topic, partition, start, _ in ranges
            if landed.get((topic, partition), start) != start
        ]
        if wrong:
            raise HaltError(f"the checkpoint and the tables disagree: {'; '.join(wrong)}")

    def _check_topics(self) -> None:
        """Raises `HaltError` if a topic was deleted, or recreated, since the job began."""
        now = self._brokers.topics(self._epoch.topics.ids)
        for name, topic_id in self._epoch.topics.ids.items():
            if name not in now:
                raise HaltError(f"the topic {name} (id {topic_id}) was deleted")
            if now[name].id != topic_id:
                raise HaltError(
                    f"the topic {name} was deleted and recreated (id {topic_id}, now {now[name].id}): the job does"
                    " not land it under the old one's offsets; start again to see the loss"
                )
