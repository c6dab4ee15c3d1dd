"""One partition of the log: reads it, and appends to it while this process owns it.

An owner's first record is its claim, of a producer epoch that is higher than all before. From then on Kafka refuses what earlier
owners send, so the log that the new owner reads to its claim is complete, and the state in memory stays the log's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from aiokafka.structs import TopicPartition
from headrace_common.kafka.client import Topic
from headrace_common.kafka.producer import LOST_US, Producer
from headrace_common.kafka.record_batch import UNLIMITED, KeyedBatch
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy, HeadraceError
from headrace_common.operations.log import Log
from headrace_common.operations.settings import KafkaSettings
from headrace_common.publishing.partitions import partition_of

from headrace_segment.appending import Appending, Question
from headrace_segment.replica.log_reader import LogReader
from headrace_segment.store.checkpoint import checkpoint
from headrace_segment.store.fold import Fold
from headrace_segment.store.recent import RecentBlocks
from headrace_segment.store.records import LAST_EPOCH, Block, Claim, Record, decode, segment_of, start_of

PAUSE: Final = 1.0
"""Seconds after a refused batch in which nothing is produced for its partition."""


class UnreadableError(HeadraceError):
    """The log cannot be read from any state that we have."""


class FencedError(HeadraceError):
    """Another process has claimed the partition."""


class Partition:
    """Calls `heard` with the segments of records that are stored, and the number of their blocks. `exceeds`: see `Appending`.

    `checkpoint_records`: between two checkpoints.

    It is `live` while this process owns it and has read its log: only then are its questions answered.
    """

    def __init__(
        self,
        number: int,
        settings: KafkaSettings,
        topic: Topic,
        reader: LogReader,
        recent: RecentBlocks,
        log: Log,
        heard: Callable[[set[str], int], None],
        exceeds: Callable[[str, bytes | None], str | None],
        checkpoint_records: int,
    ) -> None:
        self.number = number
        self.recent = recent
        self.fold = Fold()
        self.start = 0
        """Where the log is read from: the offset of the newest whole checkpoint, as a record says; else 0."""
        self.live = asyncio.Event()
        self._settings = settings
        self._topic = topic
        self._reader = reader
        self._log = log
        self._heard = heard
        self._exceeds = exceeds
        self._checkpoint_records = checkpoint_records
        self._where = TopicPartition(settings.segments_topic, number)
        self._clock = asyncio.get_running_loop().time
        self._filled = asyncio.Event()
        self.idle = asyncio.Event()
        """No record waits, or is under way."""
        self.appending = self._new_appending()

    def _new_appending(self) -> Appending:
        return Appending(self.fold, self._exceeds)

    # Reading

    async def read(self) -> None:
        """Reads the log to the end that it has now. Waits for Kafka without limit.

        Raises `KafkaError`, `LogError`, and `UnreadableError` if no state reaches to where the log begins, or another number of
        partitions places a segment elsewhere: its writers would begin again.
        """
        first, end = await self._reader.bounds(self.number)
        if not first <= self.fold.next_offset <= end or (self.fold.next_offset == 0 and end):
            self.start = await self._begin(first, end)
            self.fold = Fold(self.start)
        if self.fold.next_offset < end:
            await self._reader.read(self.number, self.fold.next_offset, lambda record: self._take(record, end))
        for name in self.fold.segments:
            if (leads := partition_of(name.encode(), self._topic.partitions)) != self.number:
                raise UnreadableError(
                    f"topic {self._topic.name}: segment {name} lies in partition {self.number}, and of"
                    f" {self._topic.partitions} its name chooses {leads}: some were added, and their number may never change"
                )

    async def _begin(self, first: int, end: int) -> int:
        """Returns where the log is read from. Its last record says it, or one before it: a claim is made before the log is read,
        so the log may have been cut beyond where that says.
        """
        if end == 0:
            return 0
        back = 1
        while True:
            at = max(end - back, first)
            start = await self._start_at(at) if at < end else -1
            if start >= first:
                return start
            if at == first:
                raise UnreadableError(f"the log begins at {first}, and no whole checkpoint reaches that far")
            back *= 2

    async def _start_at(self, offset: int) -> int:
        found: list[int] = []

        def take(record: Any) -> bool:
            found.append(start_of(record.value))
            return True

        await self._reader.read(self.number, offset, take)
        return found[0]

    def _take(self, record: Any, end: int) -> bool:
        fold = self.fold
        fold.apply(record.offset, segment_of(record.key), decode(record.value), record.timestamp)
        self.start = max(self.start, start_of(record.value))
        return fold.next_offset >= end

    # Owning

    async def claim(self, claim: Claim, producer: Producer) -> None:
        """Stores the claim, and reads the log to it.

        Raises `FencedError` if another process has claimed the partition; `DeliveryError`, and what `read` raises.
        """
        await self.read()
        last = self.fold.claim
        if last is not None and last.producer_id != claim.producer_id and last.epoch < LAST_EPOCH:
            await self._claim(replace(last, epoch=LAST_EPOCH, nonce=claim.nonce), producer)
        await self._claim(claim, producer)
        self.appending = self._new_appending()
        self.recent.clear()

    async def _claim(self, claim: Claim, producer: Producer) -> None:
        producer.adopt(self._where, claim.producer_id, claim.epoch)
        await self._store(producer, self._alone(claim, self.start))
        await self.read()
        if self.fold.claim != claim:
            raise FencedError

    async def own(self, producer: Producer) -> None:
        """Appends what is asked for, batch after batch.

        Raises `FencedError`; `DeliveryError`, unless Kafka refuses the records themselves.
        """
        self.live.set()
        due = self._next_checkpoint()
        while True:
            self.idle.set()
            await self._filled.wait()
            self._filled.clear()
            while self.appending:
                if self.fold.next_offset >= due:
                    await self._checkpoint(producer)
                    due = self._next_checkpoint()
                if (turn := producer.turn(self._where)) is not None:
                    await asyncio.wait({turn})  # what is asked meanwhile goes with it
                batch, stamp = KeyedBatch(self._topic.batch_bytes(self._settings.batch_bytes)), now_ms()
                if self.appending.fill(lambda key, record: batch.add(key, record.encode(self.start), stamp)):  # noqa: B023  (it is called now)
                    await self._append(producer, batch)

    async def _append(self, producer: Producer, batch: KeyedBatch) -> None:
        try:
            time_ms = await self._store_next(producer, batch)
        except DeliveryError as error:
            if error.in_doubt or error.policy is not DeliveryPolicy.POISON:
                raise
            self._log.warning("blocks were refused", partition=self.number, problem=str(error))
            self.appending.refused("producer")
            await asyncio.sleep(PAUSE)
            return
        taken = self.appending.stored(self.fold.next_offset, time_ms)
        for name, offset, record in taken:
            if isinstance(record, Block):
                self.recent.add(name, offset, record.data)
        self._heard({name for name, _, _ in taken}, sum(isinstance(record, Block) for _, _, record in taken))

    def _next_checkpoint(self) -> int:
        """Returns the offset from which one is due: it is not longer than the log before it."""
        writers = sum(len(segment.writers) for segment in self.fold.segments.values())
        return self.start + max(self._checkpoint_records, writers)

    async def _checkpoint(self, producer: Producer) -> None:
        """Stores the state, and then that the log is read from there."""
        begin, claim = self.fold.next_offset, self.fold.claim
        assert claim is not None
        for part in checkpoint(self.fold):
            await self._store_alone(producer, part, self.start)
        await self._store_alone(producer, claim, begin)
        self.start = begin

    async def _store_alone(self, producer: Producer, record: Record, start: int) -> None:
        time_ms = await self._store_next(producer, self._alone(record, start))
        self.fold.apply(self.fold.next_offset, "", record, time_ms)

    @staticmethod
    def _alone(record: Record, start: int) -> KeyedBatch:
        batch = KeyedBatch(UNLIMITED)
        batch.add(b"", record.encode(start), now_ms())
        return batch

    async def _store_next(self, producer: Producer, batch: KeyedBatch) -> int:
        """Stores a batch behind all that is known. Returns its time (Unix, ms)."""
        offset, time_ms = await self._store(producer, batch)
        if offset >= 0 and offset != self.fold.next_offset:
            raise UnreadableError("the log lost records that were stored: it is read again")
        return time_ms if time_ms >= 0 else now_ms()

    async def _store(self, producer: Producer, batch: KeyedBatch) -> tuple[int, int]:
        try:
            return await producer.store(self._where, batch, self._clock() + self._settings.ack_deadline)
        except DeliveryError as error:
            if isinstance(error.__cause__, LOST_US):
                raise FencedError(str(error)) from error
            raise

    def ask(self, question: Question, caller: Any) -> None:
        """Queues a question of a conversation."""
        self.appending.ask(question, caller)
        self._filled.set()

    def put(self, segment: str, record: Record) -> None:
        """Queues a record of the service's own."""
        self.appending.put(segment, record)
        self.idle.clear()
        self._filled.set()

    def lost(self) -> None:
        """Ends all conversations: this process may not be the owner any more."""
        self.live.clear()
        self.appending.lost("producer")
        self.appending = self._new_appending()


def now_ms() -> int:
    """Returns the Unix time."""
    return time.time_ns() // 1_000_000
