"""One partition of the log as this replica sees it: it reads the log to its end and on, and hands each record to the fold. Where
its own records are next, its producer brings them.

Questions that come before the partition is `live` wait; if it cannot become live, or its records' outcome is unknown, their
callers are answered so in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from aiokafka import ConsumerRecord
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from aiokafka.structs import TopicPartition
from headrace_common.kafka.barrier import EndBarrier
from headrace_common.kafka.client import explain
from headrace_common.operations.log import Log
from headrace_common.operations.settings import KafkaSettings

from headrace_segment.replica.log_reader import LogReader
from headrace_segment.replica.snapshot_topic import SnapshotTopic
from headrace_segment.replica.tail import Tail
from headrace_segment.serving import ServedSessions
from headrace_segment.store.early import OwnRecord, fold_early
from headrace_segment.store.fold import Fold
from headrace_segment.store.outcomes import Appended, Changed, Outcome
from headrace_segment.store.recent import RecentBlocks
from headrace_segment.store.records import BLOCK_OVERHEAD, Delete, LogError

POLL_MS: Final = 1000
FIRST_MS: Final = 50
"""Milliseconds for a fetch before the partition is live: within these Kafka says that we may not read."""

RETRY: Final = 1.0


class Partition:
    """Calls `heard` with the segments of the last few records, `judged` with each outcome, and `went_live` whenever it becomes
    live.
    """

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
        went_live: Callable[[int], None] = lambda number: None,
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
        self._went_live = went_live
        self._where = TopicPartition(settings.segments_topic, number)
        self._barrier = EndBarrier(self._end)
        self._tail: Tail | None = None
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
        end = await self._reader.end_offset(self.number)
        if end > self.fold.next_offset and self._tail is not None:
            self._tail.look()  # a reader waits for the records between
        return end

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
        tail = Tail(self._settings, self._where, lambda: self.fold.next_offset)
        await tail.start()
        self._own_end, self._is_shorter = 0, False
        self._tail = tail
        try:
            end = await self._reader.end_offset(self.number)
            while True:
                records = await tail.records(POLL_MS if self.live.is_set() else FIRST_MS)
                if self._is_shorter:
                    return
                if records:
                    async with self.still:
                        self._take(records)
                    await asyncio.sleep(0)
                if not self.live.is_set() and self.fold.next_offset >= end:
                    self.problem = None
                    self.live.set()
                    self._went_live(self.number)
        finally:
            self._tail = None
            await tail.close()

    def stored(self, first: int, own: Sequence[OwnRecord], time_ms: int) -> None:
        """Folds a batch of ours that Kafka has stored from offset `first` on. See `headrace_segment.store.early`."""
        if self._tail is None:
            return
        if first < self._own_end:
            self._is_shorter = True
            self._stopped("the log lost records that were stored: it is read again")
            return
        self._own_end = first + len(own)
        outcomes = None
        if self.live.is_set() and not self.still.locked():
            outcomes = fold_early(self.fold, first, own, time_ms)
        if outcomes is None:
            self._tail.look()
            return
        self._tail.rest()
        self._became(zip((value for _, value in own), outcomes, strict=True), time_ms)

    def _take(self, records: list[ConsumerRecord[bytes, bytes]]) -> None:
        apply, known = self.fold.apply, self.fold.next_offset
        pairs = (
            (record.value, apply(record.offset, record.key, record.value, record.timestamp))
            for record in records
            if record.offset >= known
        )
        self._became(pairs, records[-1].timestamp)

    def _became(self, pairs: Iterable[tuple[bytes | None, Outcome]], time_ms: int) -> None:
        """Takes the outcomes of the log's next records, by their values."""
        about = set()
        live = self.live.is_set()
        for value, outcome in pairs:
            if type(outcome) is Appended:
                data = (value or b"")[BLOCK_OVERHEAD:]
                self.recent.add(outcome.segment, outcome.length - len(data), data)
            elif isinstance(outcome, Changed) and isinstance(outcome.record, Delete):
                self.recent.drop(outcome.segment)
            about.add(outcome.segment)
            if live:
                self.serving.read_back(outcome)
                self._judged(outcome)
        self.log_time = max(self.log_time, time_ms)
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
