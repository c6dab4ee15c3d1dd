"""One partition of the log as this replica sees it: it reads the log to its end and on, and hands each record to the fold.

It is `live` while all that the log had is read, and the next records come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from aiokafka.structs import TopicPartition
from headrace_common.kafka.client import explain, make_consumer, start_at
from headrace_common.operations.log import Log
from headrace_common.operations.settings import KafkaSettings

from headrace_segment.replica.barrier import EndBarrier
from headrace_segment.replica.log_reader import LogReader
from headrace_segment.replica.snapshot_topic import SnapshotTopic
from headrace_segment.serving import ServedSessions
from headrace_segment.store.fold import Fold
from headrace_segment.store.outcomes import Appended, Changed, Outcome
from headrace_segment.store.recent import RecentBlocks
from headrace_segment.store.records import BLOCK_OVERHEAD, Delete, LogError

POLL_MS: Final = 1000
FIRST_MS: Final = 50
"""Milliseconds for a fetch before the partition is live: within these Kafka says that we may not read."""

RETRY: Final = 1.0

SLICE: Final = 300
"""Records that are handed to the fold before the event loop turns."""

FETCH_BYTES: Final = 4 << 20
FETCH_WAIT: Final = 5.0
"""Seconds that Kafka holds a fetch at the log's end, unless a record comes: each partition asks as often in a quiet log."""


class Partition:
    """Calls `heard` with the segments of the last few records, and `judged` with each outcome."""

    def __init__(
        self,
        number: int,
        settings: KafkaSettings,
        reader: LogReader,
        serving: ServedSessions,
        recent: RecentBlocks,
        log: Log,
        heard: Callable[[set[str]], None] = lambda names: None,
        judged: Callable[[Outcome], None] = lambda outcome: None,
    ) -> None:
        self.number = number
        self.serving = serving
        self.recent = recent
        self.fold = Fold()
        self.snapshots = SnapshotTopic(settings, number)
        self.live = asyncio.Event()
        self.still = asyncio.Lock()
        """The fold does not move while this is held."""
        self.problem: str | None = None
        """Why it cannot be served. None while it is live, or catches up."""
        self.log_time = 0
        """The newest time in the log (Unix, ms) that was read."""
        self._settings = settings
        self._reader = reader
        self._log = log
        self._heard = heard
        self._judged = judged
        self._where = TopicPartition(settings.segments_topic, number)
        self._barrier = EndBarrier(self._end)
        self._own_end = 0
        """The offset after our records that Kafka has stored since the log was read: the next ones lie there or later."""
        self._is_shorter = False
        """Kafka has stored records of ours before `_own_end`: the log has lost records that the fold has."""

    async def passed(self) -> None:
        """Waits until it has read the log up to its end at the call. Waits for Kafka without limit."""
        while True:
            await self.live.wait()
            try:
                await self._barrier.passed()
            except KafkaError:
                await asyncio.sleep(RETRY)
            else:
                return

    async def _end(self) -> int:
        return await self._reader.end_offset(self.number)

    async def offset_at(self, time_ms: int) -> int:
        """Returns the offset of the first record at this time (Unix, ms) or later, or where it would be. Raises `KafkaError`."""
        known = self.fold.next_offset
        found = await self._reader.offset_at(self.number, time_ms)
        return known if found is None else found

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
                self._barrier.advance(fold.next_offset)  # those that wait there wait on
                return
            if fold is None:
                self._stopped(f"the log begins at {start}, and no complete snapshot reaches that far")
            else:
                self._stopped(f"the newest snapshot is of offset {fold.next_offset}, and the log ends at {end}")
            await asyncio.sleep(RETRY)

    async def _read_on(self) -> None:
        consumer = self._consumer()
        await start_at(consumer, self._where)
        consumer.seek(self._where, self.fold.next_offset)
        consumer.resume(self._where)
        self._own_end, self._is_shorter = 0, False
        try:
            end = await self._reader.end_offset(self.number)
            while True:
                wait_ms = POLL_MS if self.live.is_set() else FIRST_MS
                found = await consumer.getmany(self._where, timeout_ms=wait_ms, max_records=SLICE)
                if self._is_shorter:
                    return
                if records := found.get(self._where):
                    async with self.still:
                        self._take(records)
                    await asyncio.sleep(0)
                if not self.live.is_set() and self.fold.next_offset >= end:
                    self.problem = None
                    self.live.set()
        finally:
            await consumer.stop()

    def _consumer(self) -> AIOKafkaConsumer:
        """Makes a consumer for this partition alone: with one for all, each would wait for the fetch of the others."""
        wait_ms = int(min(FETCH_WAIT, self._settings.request_timeout / 2) * 1000)
        return make_consumer(self._settings, max_partition_fetch_bytes=FETCH_BYTES, fetch_max_wait_ms=wait_ms)

    def stored(self, first: int, count: int) -> None:
        """Learns that Kafka has stored `count` records of ours from offset `first` on."""
        if first < self._own_end and not self._is_shorter:
            self._is_shorter = True
            self._stopped("the log lost records that were stored: it is read again")
        self._own_end = first + count

    def _take(self, records: Sequence[ConsumerRecord[bytes, bytes]]) -> None:
        about = set()
        live = self.live.is_set()
        for record in records:
            outcome = self.fold.apply(record.offset, record.key, record.value, record.timestamp)
            if type(outcome) is Appended:
                data = (record.value or b"")[BLOCK_OVERHEAD:]
                self.recent.add(outcome.segment, outcome.length - len(data), data)
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
        """Ends the sessions: nothing more is read, so none can be told the outcome of its blocks."""
        if problem != self.problem:
            self._log.warning("segment partition not served", partition=self.number, problem=problem)
        self.problem = problem
        self.live.clear()
        self.recent.clear()
        self.serving.producer_lost()
