"""Owns the log of segments, or stands by; and serves the clients of this process while it owns.

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
from dataclasses import replace
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition
from headrace_common.kafka.client import Topic, client_arguments, describe, explain
from headrace_common.kafka.producer import LOST_US, Producer
from headrace_common.kafka.record_batch import UNLIMITED, BatchBuilder
from headrace_common.operations.errors import DeliveryError, HeadraceError
from headrace_common.publishing.delivery import tell_weak
from headrace_common.record.encoding import encode, field
from headrace_common.service.parts import OwnParts, Runtime
from headrace_common.session.interface import Backend, Caller
from typing_extensions import override

from headrace_segment.appending import Appending, Asks
from headrace_segment.metrics import SegmentMetrics
from headrace_segment.questions import DescribeSegment, OutcomeUnknown, ReadBytes, Refusal, Refused, RepliesLeft
from headrace_segment.replica.reading import LogReader, Readers
from headrace_segment.replica.topics import needed_bytes, problems
from headrace_segment.settings import SegmentSettings
from headrace_segment.store.fold import Fold
from headrace_segment.store.records import LAST_EPOCH, RESIGNED, Claim, LogError, Record, decode, segment_of

SIGN: Final = 3.0
"""Seconds without a record after which an owner gives a sign of life."""
SILENCE: Final = 10.0
"""Seconds without a record after which who stands by claims."""
HELD_UP: Final = 3600.0
"""Seconds without a record after which an owner claims again: a broker forgets an epoch that nobody has used for a day."""
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
    """Another process has claimed the log, or may have."""


class Owner(Backend, OwnParts):
    """One process. Questions are answered only while it is `live`: it owns the segments, and has read the log. When it does not
    own them any more, it ends all conversations that wait, or have set up a writer.
    """

    def __init__(self, runtime: Runtime[SegmentSettings], metrics: SegmentMetrics) -> None:
        self.problem: str | None = "the log is not read yet"
        """Why this process does not own the segments; None if it does."""
        self.live = asyncio.Event()
        self.fold = Fold()
        self.start_at = 0
        """Where the log is read from: the offset of the newest whole checkpoint, as a record says; else 0."""
        self._runtime = runtime
        self._metrics = metrics
        metrics.segments.set_function(lambda: len(self.fold.segments))
        metrics.writers.set_function(lambda: sum(len(each.writers) for each in self.fold.segments.values()))
        metrics.bytes.set_function(lambda: sum(each.length - each.start for each in self.fold.segments.values()))
        self._kafka = runtime.settings.kafka
        self._section = runtime.settings.segment
        self._log = runtime.log
        self._where = TopicPartition(self._kafka.segments_topic, 0)
        self._reader = LogReader(self._kafka)
        self._readers = Readers(self._reader, runtime.settings, runtime.log)
        self._appending = Appending(self.fold, 0, 0)
        self._nonce = uuid.uuid4().bytes
        self._clock = asyncio.get_running_loop().time
        self._starts = True
        self._resigns = False
        self._stored = 0.0
        self._filled = asyncio.Event()
        self._resigned = asyncio.Event()

    # As a part of the service

    @override
    async def start(self) -> None:
        runtime = self._runtime
        self._topic = await self._usable()
        runtime.tasks.start(self.run(), "segments owner")
        runtime.tasks.start(self._keep_short(), "segments cut")
        await self.live.wait()

    async def _usable(self) -> Topic:
        """Returns the segments topic, once it has the settings that it needs."""
        needed = needed_bytes(self._runtime.settings.limits.frame_bytes, self._section.name_bytes)
        while True:
            try:
                _, _, topic = await describe(self._kafka, (self._where.topic,))
            except DeliveryError as error:
                self._stopped(str(error))
            else:
                tell_weak([topic], self._runtime.metrics, self._runtime.log)
                if not (found := problems(topic, needed)):
                    return topic
                self._stopped("; ".join(found))
            await asyncio.sleep(PAUSE)

    @override
    async def stop(self) -> None:
        """Lets another process claim at once. Waits at most `RESIGN` seconds for that."""
        self._resigns = True
        self._filled.set()
        if self.live.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RESIGN):
                    await self._resigned.wait()
        await self._reader.close()

    @override
    def ready_problems(self) -> list[str]:
        return [self.problem] if self.problem is not None else []

    @override
    def ask(self, question: Any, caller: Caller) -> None:
        if isinstance(question, RepliesLeft):
            self._readers.left(caller)
            caller.answered(question.ticket, None)
        elif not self.live.is_set():  # the client comes again
            caller.end("log")
            caller.answered(question.ticket, OutcomeUnknown())
        elif isinstance(question, ReadBytes):
            self._readers.ask(question, caller)
        elif isinstance(question, DescribeSegment):
            found = self.fold.segments.get(question.segment)
            caller.answered(question.ticket, found or Refused(Refusal.NO_SEGMENT))
        else:
            assert isinstance(question, Asks)
            self._appending.ask(question, caller)
            self._filled.set()

    @override
    def ended(self, caller: Caller) -> None:
        self._readers.ended(caller)
        self._appending.ended(caller)

    # Owning

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
        producer = Producer(self._kafka)
        await producer.open((self._where.topic,))
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
            self._appending = Appending(self.fold, self._section.segments, self._section.writers)
            self._readers.owns(self.fold)
            self.problem = None
            self.live.set()
            await self._append(producer, claim)
        finally:
            self.live.clear()
            self._appending.lost("producer")
            self._readers.lost()
            await producer.close()

    async def _claim(self, claim: Claim, producer: Producer) -> None:
        """Stores a claim, and reads the log to it."""
        producer.adopt(self._where, claim.producer_id, claim.epoch)
        await self._store(producer, self._alone(claim, self.start_at))
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
            self.start_at = await self._begin(first, end)
            self.fold = Fold(self.start_at)
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
        self.start_at = max(self.start_at, start)
        return self.fold.next_offset >= end

    # Appending

    async def _append(self, producer: Producer, claim: Claim) -> None:
        """Appends what is asked for, batch after batch, else signs of life; and in the end that this process has stopped.

        Raises `FencedError` and `DeliveryError`.
        """
        due, checked = self._next_checkpoint(), self._clock()
        while self._appending or not self._resigns:
            aged = self._section.retention_time and self._clock() - checked >= CHECKPOINT_TIME
            if aged or self.fold.next_offset >= due:
                await self._checkpoint(producer, claim)
                due, checked = self._next_checkpoint(), self._clock()
            if self._clock() - self._stored >= SIGN:
                await self._store_alone(producer, claim, self.start_at)
            elif self._appending:
                if (answer := producer.next_answer(self._where)) is not None:
                    await asyncio.wait({answer})  # what is asked meanwhile goes with it
                await self._append_batch(producer)
            else:
                self._filled.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SIGN):
                        await self._filled.wait()
        await self._store_alone(producer, replace(claim, nonce=RESIGNED), self.start_at)
        self._resigned.set()
        await asyncio.Event().wait()

    async def _append_batch(self, producer: Producer) -> None:
        batch, time_ms, limit = BatchBuilder(b""), now_ms(), self._topic.batch_bytes(self._kafka.batch_bytes)
        if self._appending.fill(
            lambda key, record: batch.add(field(key) + encode(record.encode(self.start_at), []), time_ms, limit)
        ):
            time_ms = await self._store_next(producer, batch)
        blocks = self._appending.stored(time_ms)
        self._metrics.blocks.inc(len(blocks))
        self._readers.stored(blocks)

    def _next_checkpoint(self) -> int:
        """Returns the offset from which one is due: it is not longer than the log before it."""
        writers = sum(len(segment.writers) for segment in self.fold.segments.values())
        return self.start_at + max(self._section.checkpoint_records, writers)

    async def _checkpoint(self, producer: Producer, claim: Claim) -> None:
        """Stores the state without what is too old, and then that the log is read from there.

        What is too old is so by the log's time, too: our clock alone could be wrong, and removed bytes are lost.
        """
        begin, now = self.fold.next_offset, min(now_ms(), self.fold.log_time)
        kept, known = (int(each * 1000) for each in (self._section.retention_time, self._section.writer_retention))
        self.fold.forget(now - kept if kept else 0, now - known, self._appending.holds)
        for part in self.fold.checkpoint():
            await self._store_alone(producer, part, self.start_at)
        await self._store_alone(producer, claim, begin)
        self.start_at = begin

    async def _store_alone(self, producer: Producer, record: Record, start: int) -> None:
        time_ms = await self._store_next(producer, self._alone(record, start))
        self.fold.apply(self.fold.next_offset, "", record, time_ms)

    @staticmethod
    def _alone(record: Record, start: int) -> BatchBuilder:
        batch = BatchBuilder(field(b""))
        batch.add(encode(record.encode(start), []), now_ms(), UNLIMITED)
        return batch

    async def _store_next(self, producer: Producer, batch: BatchBuilder) -> int:
        """Stores a batch behind all that is known. Returns its time (Unix, ms)."""
        offset, time_ms = await self._store(producer, batch)
        if offset >= 0 and offset != self.fold.next_offset:
            raise UnreadableError("the log lost records that were stored: it is read again")
        return time_ms if time_ms >= 0 else now_ms()

    async def _store(self, producer: Producer, batch: BatchBuilder) -> tuple[int, int]:
        if self.live.is_set() and self._clock() - self._stored >= HELD_UP:
            raise FencedError("this process was held up")
        try:
            place = await producer.store(self._where, batch, self._clock() + self._kafka.ack_deadline)
        except DeliveryError as error:
            if isinstance(error.__cause__, LOST_US):
                raise FencedError(str(error)) from error
            raise
        self._stored = self._clock()
        return place

    async def _keep_short(self) -> None:
        """Removes, after each checkpoint, records that no start and no reader needs any more, until it is cancelled."""
        cut_at = 0
        while True:
            await asyncio.sleep(CUT_LOOK)
            start, until = self.start_at, min(self.start_at, self.fold.needed_from())
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
