"""Appends records to the log of segments, each at most once: a record in doubt is never produced again.

A record that lands a second time could revive a session that another replica has ended since. So when one batch fails, its
producer is given up with all its records under way, waiting records are dropped, and every session ends; a fresh one begins
with new sessions. Kafka itself sends a batch again only under the same sequence number, which lands once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from aiokafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError
from aiokafka.structs import TopicPartition
from headrace_common.kafka.client import Topic, describe, explain
from headrace_common.kafka.producer import (
    LEADER_PAUSE,
    LEAST,
    Producer,
    ReplaceableProducer,
    has_leader,
    leave_unheard,
    look_for_leader,
)
from headrace_common.operations.errors import ConfigError, DeliveryError, DeliveryPolicy
from headrace_common.operations.log import Log
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import KafkaSettings
from headrace_common.publishing.delivery import PartitionRefusal
from typing_extensions import override

from headrace_segment.replica.tail import SLICE
from headrace_segment.replica.topics import needed_bytes
from headrace_segment.store.early import OwnRecord

FAILED_TIME: Final = 30.0
"""Seconds after a failure in which readiness tells it, if nothing was stored since. Then clients may try again."""


@dataclass(slots=True)  # not frozen: one for each block
class _Record:
    """A record that waits. `session`: the id of its session, or of the request that it is; None if no caller waits for it."""

    key: bytes
    value: bytes
    session: bytes | None


@dataclass(slots=True)
class _Queue:
    """The records that wait for a partition, in order, and since when a batch is under way there (event loop time)."""

    records: deque[_Record] = field(default_factory=deque)
    filled: asyncio.Event = field(default_factory=asyncio.Event)
    since: float | None = None


class LogProducer(ReplaceableProducer):
    """The producer of the segments topic. Make it inside a running event loop, and run `pump` for each partition.

    Calls `stored` with successive records that Kafka has stored, up to `SLICE` at once: their partition, the first one's offset,
    their keys and values, and their time in the log (Unix, ms). Calls `lost` when the outcome of all that was produced so far is
    unknown. Calls `refused` with the partition and session of a record that is larger than the topic takes by now. Neither this
    record nor the later ones of its session were produced; others go on.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topic: Topic,
        metrics: ReceiverMetrics,
        log: Log,
        stored: Callable[[int, int, Sequence[OwnRecord], int], None],
        lost: Callable[[], None],
        refused: Callable[[int, bytes | None], None],
    ) -> None:
        super().__init__(settings, metrics, log)
        self._has_answered = True  # its topic was looked at before
        self._topic = topic
        self._failed: PartitionRefusal | None = None
        self._too_large = False  # the topic takes less than it did
        self._refused = refused
        self._stored = stored
        self._lost = lost
        self._clock = asyncio.get_running_loop().time
        self._queues = [_Queue() for _ in range(topic.partitions)]

    @property
    @override
    def batch_bytes(self) -> int:
        """Three quarters of the topic's limit, so that a batch of several records always fits; never nothing."""
        return min(self._settings.batch_bytes, max(LEAST, self._topic.max_message_bytes * 3 // 4))

    @override
    async def refresh(self) -> None:
        if self._too_large:
            await self._look()
            self._too_large = False

    async def _look(self) -> None:
        """Looks at the topic again. Raises `DeliveryError` and `ConfigError`."""
        _, _, self._topic = await describe(self._settings, self._topics())

    @override
    def _topics(self) -> Sequence[str]:
        return (self._settings.segments_topic,)

    def put(self, partition: int, key: bytes, value: bytes, session: bytes | None = None) -> None:
        """Appends a record after those that were put before. A reader of the log learns its outcome."""
        queue = self._queues[partition]
        queue.records.append(_Record(key, value, session))
        queue.filled.set()

    def forget(self, partition: int, served: Callable[[bytes], bool]) -> None:
        """Drops waiting records of sessions and requests that are not served any more. Records under way may still land."""
        queue = self._queues[partition]
        queue.records = deque(each for each in queue.records if each.session is None or served(each.session))

    def waits(self, partition: int) -> bool:
        """Returns whether a record that no caller waits for has not left yet."""
        return any(each.session is None for each in self._queues[partition].records)

    def overdue(self, before: float) -> None:
        """Gives the producer up if it has had no answer for a batch since before this time (event loop time)."""
        oldest = min((queue.since for queue in self._queues if queue.since is not None), default=before)
        if oldest < before and self._current is not None:
            self._give_up(self._current, "ack_deadline", "KAFKA__ACK_DEADLINE has passed")

    def waited(self) -> float:
        """Returns the seconds for which the oldest batch under way has had no answer."""
        now = self._clock()
        return max((now - queue.since for queue in self._queues if queue.since is not None), default=0.0)

    def failing(self) -> tuple[float, str]:
        """Returns the seconds in which all that was produced has failed, and why; 0 if nothing fails, or nothing was tried."""
        failed, now = self._failed, self._clock()
        return (now - failed.since, str(failed.error)) if failed and now - failed.last <= FAILED_TIME else (0.0, "")

    async def pump(self, partition: int) -> None:
        """Produces the records that are put, batch after batch, until it is cancelled."""
        queue, topic = self._queues[partition], self._settings.segments_topic
        while True:
            await queue.filled.wait()
            producer = await self.current()
            if queue.records and (turn := self.turn(topic, partition)) is not None:
                await asyncio.wait({turn})  # records that are put meanwhile go with it
            await self._leader(producer, partition)
            if producer.discarded:
                continue
            if not queue.records:
                queue.filled.clear()
                continue
            if self._is_too_large(producer, queue.records[0]):
                await self._refuse(producer, partition, queue)
                continue
            with self.taken(producer, topic, partition):
                await self._send(producer, partition, queue)

    def _is_too_large(self, producer: Producer, record: _Record) -> bool:
        """Returns whether Kafka would refuse the record for its size; False if its limit is unknown."""
        most = self._topic.max_message_bytes
        if not self._topic.configuration or needed_bytes(len(record.value), len(record.key)) <= most:
            return False
        alone = producer.client.create_batch()
        alone.append(timestamp=None, key=record.key, value=record.value)
        return len(alone._build()) > most  # compressed, as Kafka counts

    async def _refuse(self, producer: Producer, partition: int, queue: _Queue) -> None:
        """Drops the first record, if it is too large for the topic as that is now."""
        with contextlib.suppress(DeliveryError, ConfigError):
            await self._look()
        if queue.records and self._is_too_large(producer, queue.records[0]):  # others may have been dropped meanwhile
            record = queue.records.popleft()
            self.forget(partition, lambda session: session != record.session)
            self._limited.warning(
                "a block is larger than the segments topic takes",
                segment=record.key.decode(),
                bytes=len(record.value),
                limit=self._topic.max_message_bytes,
            )
            self._refused(partition, record.session)

    async def _send(self, producer: Producer, partition: int, queue: _Queue) -> None:
        """Produces one batch. From here on its records are either stored, or in doubt for ever."""
        batch, own = producer.client.create_batch(), []
        now_ms = time.time_ns() // 1_000_000
        while queue.records:
            first = queue.records[0]
            if batch.append(timestamp=now_ms, key=first.key, value=first.value) is None:
                break
            queue.records.popleft()
            own.append((first.key, first.value))
        queue.since = self._clock()
        try:
            answer = await producer.client.send_batch(batch, self._settings.segments_topic, partition=partition)
            await asyncio.wait({answer, producer.gone}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done() or answer.cancelled():
                leave_unheard(answer)
                self._give_up(producer, "failed", "it has ended")
                return
            where = answer.result()
            producer.stored, self._failed = True, None
        except (KafkaError, OSError) as error:
            self._too_large |= isinstance(error, MessageSizeTooLargeError | RecordListTooLargeError)
            self._give_up(producer, "failed", explain(error))
            return
        except Exception as error:  # a bug of the client's: a fresh producer may not meet it
            self._give_up(producer, "failed", f"{type(error).__name__}: {error}")
            return
        finally:
            queue.since = None
        if where.offset < 0:  # Kafka has stored it, and does not know the offset any more
            return
        time_ms = where.timestamp if where.timestamp_type else now_ms
        for at in range(0, len(own), SLICE):
            self._stored(partition, where.offset + at, own[at : at + SLICE], time_ms)
            if at + SLICE < len(own):
                await asyncio.sleep(0)

    def _give_up(self, producer: Producer, why: str, problem: str) -> None:
        if not self._retire(producer, why, rarely=True):
            return
        self._failed = PartitionRefusal.again(self._failed, self._clock(), DeliveryError(problem, DeliveryPolicy.RETRY))
        self._limited.warning("segment producer replaced", why=why, problem=problem)
        for queue in self._queues:  # never produced, and never will be: their sessions end
            queue.records.clear()
            queue.since = None  # records under way tell nothing about the next producer
        self._lost()

    async def _leader(self, producer: Producer, partition: int) -> None:
        """Waits until the partition has a leader: without one its batch would expire, and end the sessions of all others."""
        where = TopicPartition(self._settings.segments_topic, partition)
        while not has_leader(producer, where) and not producer.discarded:
            await look_for_leader(producer, where.topic)
            await asyncio.sleep(LEADER_PAUSE)
