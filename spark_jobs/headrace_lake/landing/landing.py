"""Lands one batch, from Kafka's records to committed rows. `Landing._land` is where exactly once is decided."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from headrace_common.operations.log import Log

from headrace_lake.kafka.checkpoint import Range
from headrace_lake.kafka.source import Brokers, TopicPartition
from headrace_lake.kafka.start import Position
from headrace_lake.landing.left_out import rows as left_out_rows
from headrace_lake.landing.plan import Execution, Landed, Plan
from headrace_lake.rows.decode import Topics
from headrace_lake.spark.halt import HaltError, PartitionsAddedError, StoppingError
from headrace_lake.tables.append import arrow_rows
from headrace_lake.tables.fence import Fence, transaction
from headrace_lake.tables.layout import BATCHES, DUPLICATES, SCHEMAS


@dataclass(frozen=True)
class Epoch:
    """One job's time as the only writer of the tables."""

    number: int
    topics: Topics
    fence: Fence
    position: Position
    log: Log


@dataclass(frozen=True)
class BatchResult:
    """The result of one batch."""

    batch: int
    seconds: float
    ends: Mapping[TopicPartition, int]
    """One past the last landed offset, by partition of the batch."""
    landed: Landed


class Landing:
    """Lands batches under one epoch. Spark calls it with one batch at a time.

    It asks for the `ranges` of a batch, calls `stopping` before it, and `on_landed` with the batch's result.
    """

    def __init__(
        self,
        epoch: Epoch,
        *,
        ranges: Callable[[int], list[Range]],
        brokers: Brokers,
        execution: Execution,
        stopping: Callable[[], bool],
        on_landed: Callable[[BatchResult], None],
    ) -> None:
        self._epoch = epoch
        self._ranges = ranges
        self._brokers = brokers
        self._execution = execution
        self._stopping = stopping
        self._on_landed = on_landed
        self.failure: BaseException | None = None
        """The error of the last call that failed; Spark passes on only its text."""

    def __call__(self, records: Any, batch: int) -> None:
        """Lands `records` as the batch number `batch`. If this raises, the query ends, and the next epoch lands them."""
        try:
            self._land(records, batch)
        except BaseException as error:
            self.failure = error
            raise

    def _land(self, records: Any, batch: int) -> None:
        if self._stopping():
            raise StoppingError("the job is stopping")
        began = time.monotonic()
        version = transaction(self._epoch.number, batch)
        self._epoch.fence.check(version)
        ranges = self._ranges(batch)
        self._epoch.log.debug("batch begins", batch=batch, ranges=len(ranges))
        if not ranges:
            return
        self._check_contiguous(ranges)
        self._check_topics()
        strays = self._epoch.position.has_strays(ranges)
        if strays:
            self._epoch.log.info("rows of an interrupted job left out")
        plan = Plan(version, ranges, datetime.now(UTC), strays)
        landed = self._execution.begin(records, plan)
        try:
            self._execution.events(plan, landed)
            self._epoch.log.debug("events written", batch=batch)
            self._execution.quarantine(plan, landed)
            self._epoch.log.debug("quarantine written", batch=batch)
        finally:
            self._execution.end()
        if landed.left_out:
            self._epoch.fence.write(DUPLICATES, left_out_rows(landed.left_out, plan.landed_at), version)
        self._epoch.fence.write(BATCHES, self._summary(batch, ranges, landed), version)
        self._epoch.log.debug("batch written", batch=batch)
        self._epoch.fence.check(version)

        self._epoch.position.add(ranges)
        ends = {(topic, partition): end for topic, partition, _, end in ranges}
        took = time.monotonic() - began
        self._on_landed(BatchResult(batch, took, ends, landed))

    def _summary(self, batch: int, ranges: list[Range], landed: Landed) -> pa.Table:
        rows = [
            {
                "epoch": self._epoch.number, "batch": batch, "topic": topic, "topic_id": self._epoch.topics.ids[topic],
                "partition": partition, "from": start, "to": end, "records": landed.records[topic, partition],
                "landed_at": landed.since, "strays": None, "number": number,
            }
            for number, (topic, partition, start, end) in enumerate(ranges, self._epoch.position.number + 1)
        ]  # fmt: skip
        return arrow_rows(rows, SCHEMAS[BATCHES])

    def _check_contiguous(self, ranges: Sequence[Range]) -> None:
        """Raises `PartitionsAddedError` for partitions that this job has not claimed: of rows that a killed job leaves in
        them, `batches` would know nothing. Raises `HaltError` if the batch does not begin where the tables end.
        """
        landed = self._epoch.position.landed
        added = [f"{topic}/{partition}" for topic, partition, _, _ in ranges if (topic, partition) not in landed]
        if added:
            raise PartitionsAddedError(f"partitions were added: {', '.join(added)}")
        wrong = [
            f"{topic}/{partition}: landed to {landed[topic, partition]}, the batch begins at {start}"
            for topic, partition, start, _ in ranges
            if landed[topic, partition] != start
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
