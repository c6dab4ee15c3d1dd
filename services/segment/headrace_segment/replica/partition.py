"""One partition of the log as this replica sees it: it reads the log to its end and on, and hands each record to the fold.

Whatever is asked before the partition is `live` waits; when it cannot become live, or its records cannot be judged, whoever waits
is told so in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from aiokafka.structs import TopicPartition
from headrace_common.kafka.barrier import EndBarrier
from headrace_common.kafka.client import explain, make_consumer, start_at
from headrace_common.operations.log import Log
from headrace_common.operations.settings import KafkaSettings

from headrace_segment.replica.log_reader import LogReader
from headrace_segment.replica.snapshot_topic import SnapshotTopic
from headrace_segment.serving import ServedSessions
from headrace_segment.store.fold import Fold
from headrace_segment.store.outcomes import Appended, Changed, Outcome
from headrace_segment.store.recent import RecentBlocks
from headrace_segment.store.records import BLOCK_OVERHEAD, Delete, LogError

SLICE: Final = 300
"""Records that are folded before the event loop turns."""

POLL_MS: Final = 1000
RETRY: Final = 1.0
FETCH_BYTES: Final = 4 << 20
FETCH_WAIT: Final = 5.0
"""Seconds that Kafka holds a fetch at the log's end, unless something comes: each partition asks so often when all is quiet."""


class Partition:
    """`heard` hears, after a few records, what segments they were about; `judged` each outcome; `went_live` each time when it
    is live from then on.
    """

    def __init__(
        self,
        number: int,
        settings: KafkaSettings,
        reader: LogReader,
        serving: ServedSessions,
        recent: RecentBlocks,
        log: Log,
        heard: Callable[[set[str]], None],
        judged: Callable[[Outcome], None],
        went_live: Callable[[int], None],
    ) -> None:
        self.number = number
        self.serving = serving
        self.recent = recent
        self.fold = Fold()
        self.snapshots = SnapshotTopic(settings, number)
        self.live = asyncio.Event()
        self.still = asyncio.Lock()
        """Whoever holds it sees a fold that does not move."""
        self.problem: str | None = None
        """Why it cannot be served. None while it is live, or catches up."""
        self.log_time = 0
        """The newest time in the log (Unix, ms) that was read."""
        self._settings = settings
        self._reader = reader
        self._log = log
        self._heard = heard
        self._judged = judged
        self._went_live = went_live
        self._where = TopicPartition(settings.segments_topic, number)
        self._barrier = self._new_barrier()

    def _new_barrier(self) -> EndBarrier:
        return EndBarrier(lambda: self._reader.end_offset(self.number), self.fold.next_offset)

    async def passed(self) -> None:
        """Waits until it has read what was in the log when this was called. Waits for Kafka without limit."""
        while True:
            await self.live.wait()
            try:
                await self._barrier.passed()
            except KafkaError:
                await asyncio.sleep(RETRY)
            else:
                return

    async def follow(self) -> None:
        """Reads the log until it is cancelled."""
        while True:
            try:
                await self._begin()
                await self._read_on()
            except LogError as error:
                self._stopped(f"the log cannot be read: {error}")
                await asyncio.Event().wait()
            except OffsetOutOfRangeError:
                self._stopped("records that were not read yet are gone from the log")
            except (KafkaError, OSError) as error:
                self._stopped(f"Kafka: {explain(error)}")
            await asyncio.sleep(RETRY)

    async def _begin(self) -> None:
        """Makes the fold of the newest snapshot, or of the log's beginning."""
        while True:
            start = await self._reader.start_offset(self.number)
            fold = await self.snapshots.newest(start)
            if fold is None and start == 0:
                fold = Fold()
            end = await self._reader.end_offset(self.number)
            if fold is not None and fold.next_offset <= end:
                self.fold = fold
                self._barrier = self._new_barrier()
                return
            if fold is None:
                self._stopped(
                    f"the log begins at {start}, and there is no complete snapshot from which it can be read on"
                )
            else:
                self._stopped(f"the newest snapshot is of offset {fold.next_offset}, and the log ends at {end}")
            await asyncio.sleep(RETRY)

    async def _read_on(self) -> None:
        consumer: AIOKafkaConsumer = make_consumer(
            self._settings,
            max_partition_fetch_bytes=FETCH_BYTES,
            fetch_max_wait_ms=int(min(FETCH_WAIT, self._settings.request_timeout / 2) * 1000),
        )
        await start_at(consumer, self._where)
        try:
            consumer.seek(self._where, self.fold.next_offset)
            consumer.resume(self._where)
            end = await self._reader.end_offset(self.number)
            while True:
                if not self.live.is_set() and self.fold.next_offset >= end:
                    self.problem = None
                    self.live.set()
                    self._went_live(self.number)
                found = await consumer.getmany(
                    self._where, timeout_ms=POLL_MS if self.live.is_set() else 50, max_records=SLICE
                )
                records = found.get(self._where)
                if records:
                    async with self.still:
                        self._take(records)
                    await asyncio.sleep(0)
        finally:
            await consumer.stop()

    def _take(self, records: list[ConsumerRecord[bytes, bytes]]) -> None:
        apply, about = self.fold.apply, set()
        live = self.live.is_set()
        for record in records:
            outcome = apply(record.offset, record.key, record.value, record.timestamp)
            if type(outcome) is Appended:
                size = len(record.value or b"") - BLOCK_OVERHEAD
                self.recent.add(outcome.segment, outcome.length - size, (record.value or b"")[BLOCK_OVERHEAD:])
            elif isinstance(outcome, Changed) and isinstance(outcome.record, Delete):
                self.recent.drop(outcome.segment)
            about.add(outcome.segment)
            if live:
                self.serving.read_back(outcome)
                self._judged(outcome)
        self.log_time = max(self.log_time, records[-1].timestamp)
        self._barrier.advance(self.fold.next_offset)
        if live:
            self._heard(about)

    def _stopped(self, problem: str) -> None:
        """Nothing is read any more: no session learns what becomes of its blocks."""
        if problem != self.problem:
            self._log.warning("partition of segments is not served", partition=self.number, problem=problem)
        self.problem = problem
        self.live.clear()
        self.recent.clear()
        self.serving.producer_lost()
