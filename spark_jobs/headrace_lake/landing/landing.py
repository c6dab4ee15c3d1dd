"""Lands one batch, from Kafka's records to committed rows. `Landing._land` is where exactly once is decided."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation

from headrace_lake.kafka.checkpoint import Checkpoint, Range
from headrace_lake.kafka.epoch import Epoch
from headrace_lake.kafka.source import Brokers, TopicPartition
from headrace_lake.kafka.start import landed_already
from headrace_lake.landing import freshness
from headrace_lake.landing.freshness import Ages
from headrace_lake.landing.gathered import gathered
from headrace_lake.landing.landing_events import DedupStatus, EventsLanding, PartitionCounts
from headrace_lake.landing.markers import GapMarkers
from headrace_lake.landing.quarantine import Quarantine, QuarantineCounts
from headrace_lake.spark.halt import HaltError, StoppingError
from headrace_lake.tables.append import arrow_rows
from headrace_lake.tables.fence import transaction
from headrace_lake.tables.layout import BATCHES, KEY, QUARANTINE, SCHEMAS


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
    """Quarantined rows, by reason, as far as they were counted."""
    dedup_status: DedupStatus | None = None
    """How well duplicates are recognised now."""


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
        markers: GapMarkers,
        stopping: Callable[[], bool],
        on_landed: Callable[[BatchResult], None],
    ) -> None:
        self._epoch = epoch
        self._checkpoint = checkpoint
        self._brokers = brokers
        self._markers = markers
        self._quarantine = Quarantine(epoch.spark, epoch.lake, topics=epoch.topics, erased=events.erased)
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
        self._events.begin_batch()
        records = gathered(records, ranges)
        landed_at = datetime.now(UTC)

        found = self._events.land(records, ranges, version, landed_at)
        self._epoch.log.debug("events written", batch=batch)
        counts = {(self._epoch.topics.events, number): count for number, count in found.partitions.items()}
        self._markers.land(records, ranges, found.markers, version, landed_at)
        quarantined = self._land_quarantine(records, ranges, counts, version, landed_at)
        self._epoch.log.debug("quarantine written", batch=batch)
        earliest = min(since for since in (landed_at, found.since, quarantined.since) if since is not None)
        self._epoch.fence.write(BATCHES, self._summary(batch, ranges, counts, earliest), version)
        self._epoch.log.debug("batch written", batch=batch)
        self._epoch.fence.check(version)

        self._epoch.position.add(ranges)
        self._events.landed(ranges, found)
        duplicates = sum(count.duplicates for count in counts.values())
        sound = sum(count.sound for count in counts.values())
        total = sum(count.records for count in counts.values())
        rejected = total - sound - sum(count.skipped for count in counts.values())
        took = time.monotonic() - began
        self._on_landed(
            BatchResult(
                batch, total, sound - duplicates, rejected, found.looked_up, took,
                ends={(topic, partition): end for topic, partition, _, end in ranges},
                ages=freshness.ages(found.ages, took) if found.ages else Ages([]),
                newest=max(found.latest.values(), default=None),
                duplicates=found.duplicates,
                erased=found.erased,
                reasons=quarantined.reasons,
                dedup_status=self._events.dedup_status(),
            )
        )  # fmt: skip

    def _land_quarantine(
        self,
        records: DataFrame,
        ranges: list[Range],
        counts: dict[TopicPartition, PartitionCounts],
        version: int,
        landed_at: datetime,
    ) -> QuarantineCounts:
        """Lands the quarantine topic's records, and the faulty ones that `counts` found among the events. Completes `counts`."""
        faulty = {place for place, count in counts.items() if count.sound < count.records}
        decoded = self._quarantine.rows(records, ranges, landed_at, faults=bool(faulty))
        if decoded is None:
            return QuarantineCounts()
        places = [item[:2] for item in ranges if item.topic == self._epoch.topics.quarantine or item[:2] in faulty]
        seen, whole = self._write(decoded, self._quarantine.measures(), ranges, version)
        there, since = ({}, None) if whole else self._quarantine.there(ranges)
        for place, (records_there, skipped) in self._quarantine.measured(places, seen).items():
            count = counts.get(place, PartitionCounts(records_there))
            if not whole:  # an erasure may have come in between: count what an earlier run landed
                skipped = count.records - count.sound - there.get(place, 0)
            counts[place] = count._replace(skipped=skipped)
        if not whole:  # of what reasons the rows are that landed was not counted
            return QuarantineCounts(since=since)
        return QuarantineCounts(self._quarantine.by_reason(seen), since)

    def _write(
        self, decoded: DataFrame, measures: list[Column], ranges: list[Range], version: int
    ) -> tuple[dict[str, Any], bool]:
        """Appends the wanted rows of `decoded` to the quarantine table.

        Returns the `measures` over all of `decoded`, and whether all rows are this write's, not also strays.
        """
        columns = SCHEMAS[QUARANTINE].names
        if self._epoch.among_strays(ranges):
            wanted = decoded.where(self._quarantine.wanted).select(*columns)
            starts = {(topic, number): start for topic, number, start, _ in ranges}
            there = landed_already(self._epoch.spark, self._epoch.lake, QUARANTINE, starts, self._epoch.topics.ids)
            self._epoch.log.info("rows of an interrupted job left out", table=QUARANTINE)
            self._epoch.fence.write(QUARANTINE, wanted.join(there, list(KEY), "left_anti").select(*columns), version)
            row = decoded.agg(*measures).first()
            return row.asDict() if row is not None else {}, False
        observation = Observation()
        observed = decoded.observe(observation, *measures).where(self._quarantine.wanted).select(*columns)
        self._epoch.fence.write(QUARANTINE, observed, version)
        return dict(observation.get), True

    def _summary(
        self,
        batch: int,
        ranges: list[Range],
        counts: dict[TopicPartition, PartitionCounts],
        landed_at: datetime,
    ) -> pa.Table:
        rows = []
        for number, (topic, partition, start, end) in enumerate(ranges, self._epoch.position.rows + 1):
            records, sound, duplicates, skipped = counts[topic, partition]
            rows.append(
                {
                    "epoch": self._epoch.number, "batch": batch, "topic": topic, "topic_id": self._epoch.topics.ids[topic],
                    "partition": partition, "from": start, "to": end, "records": records, "events": sound - duplicates,
                    "duplicates": duplicates, "quarantined": records - sound - skipped, "skipped": skipped,
                    "landed_at": landed_at, "strays": None, "number": number,
                }
            )  # fmt: skip
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
