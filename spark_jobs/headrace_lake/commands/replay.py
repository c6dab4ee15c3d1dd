"""Replay: lands again the records that the tables lack within ranges that were landed before.

Not a stream: each step reads the ranges of a few rows of `batches`. A record whose (topic_id, partition, offset) is in a table
is never touched. A missing record lands as a batch would land it today: a deleted row comes back. A resend stays left out while
a copy of it is in the table. An erased record never comes back (`tables.erasures`).

A replay claims an epoch, so a running job stops. Each finished step is exact; if a replay was killed, run it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
from headrace_common.operations.log import Log
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headrace_lake.commands import replay_plan
from headrace_lake.commands.replay_plan import (
    BatchRange,
    ReplayResult,
    Step,
    Unreplayable,
    merged,
    steps,
)
from headrace_lake.commands.replay_rows import ReplayRows
from headrace_lake.kafka.source import TopicInfo
from headrace_lake.kafka.start import claimed_lines, coverage, strays
from headrace_lake.rows.decode import Topics
from headrace_lake.spark.causes import root_cause
from headrace_lake.spark.halt import HaltError, KafkaAwayError
from headrace_lake.tables import layout
from headrace_lake.tables.fence import REPLAYED, Fence, transaction
from headrace_lake.tables.layout import BATCHES, EVENTS, QUARANTINE

_1970: Final = datetime(1970, 1, 1, tzinfo=UTC)
_GONE: Final = "Kafka no longer holds it"
_DROPPED: Final = "the tables no longer keep that day: LAKE__RETENTION_DAYS"
_RECREATED: Final = "the topic was recreated"


class Replay:
    """One replay. Calls `stopping` before each step."""

    def __init__(
        self,
        rows: ReplayRows,
        since: datetime,
        *,
        dry_run: bool,
        log: Log,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """`since`: batches that landed earlier stay as they are."""
        self._rows = rows
        self._tables = rows.tables
        self._brokers = rows.brokers
        self._settings = rows.settings
        self._since = since
        self._dry_run = dry_run
        self._log = log
        self._stopping = stopping
        self._fence = Fence(rows.tables)
        self._unreplayable = Unreplayable()
        self._epoch = 0

    def run(self) -> ReplayResult:
        """Replays, logs one line per step and one at the end, and returns the sum.

        Raises `HaltError` without tables or topics, if Kafka is away, or if another job takes over. Finished steps stay.
        """
        kafka = self._settings.kafka
        try:
            if not self._tables.storage.exists(f"{self._tables.path(BATCHES)}/_delta_log"):
                raise HaltError(
                    f"there are no tables in {self._tables.lake}: nothing was landed that a replay could restore"
                )
            names = (kafka.events_topic, kafka.quarantine_topic)
            topics = self._brokers.topics(names)
            if missing := [name for name in names if name not in topics]:
                raise HaltError(f"there is no topic {' and no topic '.join(missing)}")
            if not self._dry_run:
                self._claim(topics)
            return self._replay(topics)
        except KafkaAwayError as error:
            raise HaltError(str(error)) from error
        finally:
            self._brokers.close()

    def _claim(self, topics: Mapping[str, TopicInfo]) -> None:
        """Shuts out every job."""
        layout.create(self._tables.storage, self._tables.lake)

        def settle(epoch: int) -> Mapping[str, pa.Table]:
            there = coverage(self._tables, topics)
            left = strays(self._tables, there.ends, topics)
            return {BATCHES: claimed_lines(epoch, there, left, {}, topics)} if left else {}

        self._epoch = self._fence.claim(settle)
        self._log.info("claimed the tables", epoch=self._epoch)

    def _replay(self, topics: Mapping[str, TopicInfo]) -> ReplayResult:
        kafka = self._settings.kafka
        ids = {name: topic.id for name, topic in topics.items()}
        self._topics = Topics(kafka.events_topic, kafka.quarantine_topic, ids)
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
        earliest = self._brokers.offsets(every, earliest=True)
        ids = {topic.id for topic in topics.values()}
        kept = self._kept_from()
        for line in self._rows.lines(self._since, topics):
            at = earliest.get(line.place, 0) if line.topic_id in ids else None
            batch_range = replace(line, first_held=line.end if at is None else min(max(line.start, at), line.end))
            if kept is not None and line.landed_at < kept:
                self._unreplayable.add(line, line.start, line.end, _DROPPED)
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
        ranges = merged(step)
        plan = Step(ranges, version, replay_plan.landing_time(step, datetime.now(UTC)))
        done = self._rows.restore(self._topics, plan, apply=not self._dry_run, check=self._check_topics)
        done = replace(done, offsets=sum(end - start for start, end in ranges.values()))
        self._log.info(
            "would replay" if self._dry_run else "replayed",
            step=number, offsets=done.offsets, events=done.events, quarantined=done.quarantined,
            left_out=done.left_out, seconds=round(time.monotonic() - began, 2),
        )  # fmt: skip
        return done

    def _check_topics(self) -> None:
        """Raises `HaltError` if a topic was recreated: the records just read may be of the new one."""
        now = self._brokers.topics(self._topics.ids)
        for name, topic_id in self._topics.ids.items():
            if name not in now or now[name].id != topic_id:
                raise HaltError(f"the topic {name} was deleted, or recreated, meanwhile: start again")
