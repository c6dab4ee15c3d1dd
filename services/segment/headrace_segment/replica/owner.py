"""Owns the log of segments, or stands by.

There is no agreement between processes but the log. Who starts claims the ownership, and the former owner stands by. Who stands
by reads the log, and claims when its owner has resigned there, or has given no sign of life for `SILENCE` seconds. A claim has a
producer epoch that is higher than all before. From then on Kafka refuses what earlier owners send, so the log that the new owner
reads to its claim is complete, and the state in memory stays the log's. When the epochs of a producer id are used up, the last
one, in which nothing is appended, hands over to a new id (`Fold`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition
from headrace_common.kafka.client import Topic, client_arguments, explain
from headrace_common.kafka.producer import LOST_US, Producer
from headrace_common.kafka.record_batch import UNLIMITED, KeyedBatch
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy, HeadraceError
from headrace_common.operations.log import Log
from headrace_common.session.interface import Caller

from headrace_segment.appending import Appending, Question
from headrace_segment.replica.log_reader import LogReader
from headrace_segment.settings import SegmentSettings
from headrace_segment.store.checkpoint import checkpoint
from headrace_segment.store.fold import Fold
from headrace_segment.store.reading import RecentBlocks
from headrace_segment.store.records import LAST_EPOCH, RESIGNED, Claim, LogError, Record, decode, segment_of

SIGN: Final = 3.0
"""Seconds without a record after which an owner gives a sign of life."""
SILENCE: Final = 10.0
"""Seconds without a record after which who stands by claims."""
LOOK: Final = 1.0
PAUSE: Final = 1.0
"""Seconds after a failure in which nothing is produced."""
RESIGN: Final = 1.0
"""Seconds that a process that ends waits for its resignation to be stored."""
CUT_LOOK: Final = 60.0
"""Seconds between two tries to cut the log."""
CHECKPOINT_TIME: Final = 3600.0
"""Seconds between two checkpoints, if a retention is set: they let blocks go."""
STANDS_BY: Final = "another process owns the segments"


class UnreadableError(HeadraceError):
    """The log cannot be read from any state that we have."""


class FencedError(HeadraceError):
    """Another process has claimed the log."""


class Owner:
    """Calls `heard` with the segments of blocks that are stored, and their number; and `ended` when this process does not own the
    segments any more, so that conversations with it have no use.

    Questions are answered only while it is `live`: it owns the segments, and has read the log.
    """

    def __init__(
        self,
        settings: SegmentSettings,
        topic: Topic,
        reader: LogReader,
        throttled: Callable[[float], None],
        heard: Callable[[set[str], int], None],
        ended: Callable[[], None],
        log: Log,
    ) -> None:
        self.problem: str | None = "the log is not read yet"
        """Why this process does not own the segments; None if it does."""
        self.live = asyncio.Event()
        self.fold = Fold()
        self.start = 0
        """Where the log is read from: the offset of the newest whole checkpoint, as a record says; else 0."""
        self._kafka = settings.kafka
        self._section = settings.segment
        self._topic = topic
        self._reader = reader
        self._throttled = throttled
        self._heard = heard
        self._ended = ended
        self._log = log
        self._where = TopicPartition(topic.name, 0)
        self._nonce = uuid.uuid4().bytes
        self._clock = asyncio.get_running_loop().time
        self._starts = True
        self._resigns = False
        self._stored = 0.0
        self._filled = asyncio.Event()
        self._idle = asyncio.Event()  # no record waits, or is under way
        self._begins_anew()

    def _begins_anew(self) -> None:
        self.appending = Appending(self.fold, self._section.segments, self._section.writers)
        self.recent = RecentBlocks(self._section.cache_bytes)

    async def run(self) -> None:
        """Claims, owns and stands by until it is cancelled."""
        while True:
            try:
                await self._stand_by()
                await self._own()
            except LogError as error:
                self._stopped(f"the log cannot be read: {error}")
                await asyncio.Event().wait()
            except FencedError:
                self._starts = False
                self._stopped(STANDS_BY)
            except (UnreadableError, DeliveryError) as error:
                self._stopped(str(error))
            except (KafkaError, OSError) as error:
                self._stopped(f"Kafka: {explain(error)}")
            await asyncio.sleep(PAUSE)

    def _stopped(self, problem: str) -> None:
        if problem != self.problem:
            self._log.warning("segments not served", problem=problem)
        self.problem = problem

    async def _stand_by(self) -> None:
        """Returns when this process should claim."""
        await self._read()
        heard, known = self._clock(), self.fold.next_offset
        while not self._starts and (claim := self.fold.claim) is not None:
            if claim.nonce in (self._nonce, RESIGNED) or self._clock() - heard >= SILENCE:
                break
            self.problem = STANDS_BY
            await asyncio.sleep(LOOK)
            await self._read()
            if self.fold.next_offset != known:
                heard, known = self._clock(), self.fold.next_offset

    async def _own(self) -> None:
        """Claims the log, and serves it until that fails."""
        producer = Producer(self._kafka, self._throttled)
        await producer.open((self._topic.name,))
        try:
            last = self.fold.claim
            if last is None or last.epoch >= LAST_EPOCH - 1:
                if last is not None and last.epoch < LAST_EPOCH:
                    await self._claim(replace(last, epoch=LAST_EPOCH, nonce=self._nonce), producer)
                claim = Claim((await producer.identify())[0], 0, self._nonce)
            else:
                claim = replace(last, epoch=last.epoch + 1, nonce=self._nonce)
            await self._claim(claim, producer)
            self._starts = False
            self._log.info("segments are owned", epoch=claim.epoch)
            self._begins_anew()
            self.problem = None
            self.live.set()
            await self._append(producer, claim)
        finally:
            self.live.clear()
            self.appending.lost("producer")
            self._ended()
            await producer.close()

    async def _claim(self, claim: Claim, producer: Producer) -> None:
        """Stores a claim, and reads the log to it."""
        producer.adopt(self._where, claim.producer_id, claim.epoch)
        await self._store(producer, self._alone(claim, self.start))
        await self._read()
        if self.fold.claim != claim:
            raise FencedError

    # Reading

    async def _read(self) -> None:
        """Reads the log to the end that it has now. Waits for Kafka without limit.

        Raises `KafkaError`, `LogError`, and `UnreadableError` if no state reaches to where the log begins.
        """
        first, end = await self._reader.bounds()
        if not first <= self.fold.next_offset <= end or (self.fold.next_offset == 0 and end):
            self.start = await self._begin(first, end)
            self.fold = Fold(self.start)
        if self.fold.next_offset < end:
            await self._reader.read(self.fold.next_offset, lambda record: self._take(record, end))

    async def _begin(self, first: int, end: int) -> int:
        """Returns where the log is read from: its last record says it. That may be a claim that was made before the log was read,
        and the log may have been cut beyond where that says; then one of those before it says it, too.
        """
        starts = [0]

        def take(record: Any) -> bool:
            starts.append(decode(record.value)[1])
            return int(record.offset) + 1 >= end

        if first < end:
            await self._reader.read(end - 1, take)
            if starts[-1] < first:
                await self._reader.read(first, take)
        if end and (first == end or max(starts) < first):
            raise UnreadableError(f"the log begins at {first}, and no whole checkpoint reaches that far")
        return max(starts)

    def _take(self, record: Any, end: int) -> bool:
        decoded, start = decode(record.value)
        self.fold.apply(record.offset, segment_of(record.key), decoded, record.timestamp)
        self.start = max(self.start, start)
        return self.fold.next_offset >= end

    # Appending

    def ask(self, question: Question, caller: Caller) -> None:
        """Takes a question of a conversation."""
        self.appending.ask(question, caller)
        self._filled.set()

    async def resign(self) -> None:
        """Lets another process claim at once. Waits at most `RESIGN` seconds."""
        self._resigns = True
        if not self.live.is_set() or self.fold.claim is None:
            return
        self._idle.clear()
        self.appending.put(replace(self.fold.claim, nonce=RESIGNED))
        self._filled.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESIGN):
                await self._idle.wait()

    async def _append(self, producer: Producer, claim: Claim) -> None:
        """Appends what is asked for, batch after batch; else signs of life.

        Raises `FencedError`; `DeliveryError`, unless Kafka refuses the records themselves.
        """
        due, checked = self._next_checkpoint(), self._clock()
        while True:
            while self.appending:
                aged = self._section.retention_time and self._clock() - checked >= CHECKPOINT_TIME
                if aged or self.fold.next_offset >= due:
                    await self._checkpoint(producer, claim)
                    due, checked = self._next_checkpoint(), self._clock()
                if (turn := producer.turn(self._where)) is not None:
                    await asyncio.wait({turn})  # what is asked meanwhile goes with it
                await self._append_batch(producer)
            self._idle.set()
            self._filled.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SIGN):
                    await self._filled.wait()
            if not self._resigns and self._clock() - self._stored >= SIGN:
                self.appending.put(claim)

    async def _append_batch(self, producer: Producer) -> None:
        batch, time_ms = KeyedBatch(self._topic.batch_bytes(self._kafka.batch_bytes)), now_ms()
        if self.appending.fill(lambda key, record: batch.add(key, record.encode(self.start), time_ms)):
            try:
                time_ms = await self._store_next(producer, batch)
            except DeliveryError as error:
                if error.in_doubt or error.policy is not DeliveryPolicy.POISON:
                    raise
                self._log.warning("blocks were refused", problem=str(error))
                self.appending.lost("producer")
                await asyncio.sleep(PAUSE)
                return
        blocks = self.appending.stored(time_ms)
        for name, offset, block in blocks:
            self.recent.add(name, offset, block.data)
        self._heard({name for name, _, _ in blocks}, len(blocks))

    def _next_checkpoint(self) -> int:
        """Returns the offset from which one is due: it is not longer than the log before it."""
        writers = sum(len(segment.writers) for segment in self.fold.segments.values())
        return self.start + max(self._section.checkpoint_records, writers)

    async def _checkpoint(self, producer: Producer, claim: Claim) -> None:
        """Stores the state without what is too old, and then that the log is read from there.

        What is too old is so by the log's time, too: our clock alone could be wrong, and removed bytes are lost.
        """
        begin, now = self.fold.next_offset, min(now_ms(), self.fold.log_time)
        kept, known = (int(each * 1000) for each in (self._section.retention_time, self._section.writer_retention))
        self.fold.forget(now - kept if kept else 0, now - known, self.appending.holds)
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
            place = await producer.store(self._where, batch, self._clock() + self._kafka.ack_deadline)
        except DeliveryError as error:
            if isinstance(error.__cause__, LOST_US):
                raise FencedError(str(error)) from error
            raise
        self._stored = self._clock()
        return place

    async def keep_short(self) -> None:
        """Removes, after each checkpoint, records that no start and no reader needs any more, until it is cancelled."""
        cut_at = 0
        while True:
            await asyncio.sleep(CUT_LOOK)
            start, until = self.start, min(self.start, self.fold.needed_from())
            if start == cut_at or not self.live.is_set():
                continue
            admin = AIOKafkaAdminClient(**client_arguments(self._kafka))
            try:
                await admin.start()
                await admin.delete_records({self._where: RecordsToDelete(before_offset=until)})
                cut_at = start
            except (KafkaError, OSError) as error:
                self._log.warning("log not cut", problem=explain(error))
            finally:
                await admin.close()


def now_ms() -> int:
    """Returns the Unix time."""
    return time.time_ns() // 1_000_000
