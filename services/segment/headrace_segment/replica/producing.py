"""Appends records to the log of segments, each at most once: a record in doubt is never produced under another identity.

A record that lands a second time could revive a session that another replica has ended since. So when a batch fails, the records
that wait for its partition are dropped, and the sessions there end. Kafka itself takes a batch that is sent again once.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from aiokafka.structs import TopicPartition
from headrace_common.kafka.client import Topic
from headrace_common.kafka.producer import Producer
from headrace_common.kafka.record_batch import KeyedBatch
from headrace_common.operations.errors import DeliveryError
from headrace_common.operations.log import Log, RateLimited
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import KafkaSettings
from headrace_common.publishing.delivery import PartitionRefusal

FAILED_TIME: Final = 30.0
"""Seconds after a failure in which readiness tells it, if nothing was stored since. Then clients may try again."""

PAUSE: Final = 1.0
"""Seconds after a failure in which nothing is produced for its partition."""


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


class LogProducer:
    """The producer of the segments topic. Make it inside a running event loop, open it, and run `pump` for each partition.

    Calls `stored` with the partition of successive records that Kafka has stored, the first one's offset, and how many. Calls
    `lost` with a partition when the outcome of what was produced for it is unknown.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topic: Topic,
        metrics: ReceiverMetrics,
        log: Log,
        stored: Callable[[int, int, int], None],
        lost: Callable[[int], None],
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._limited = RateLimited(log)
        self._failed: PartitionRefusal | None = None
        self._stored = stored
        self._lost = lost
        self._clock = asyncio.get_running_loop().time
        self._producer = Producer(settings, lambda seconds: metrics.kafka_throttled.inc(seconds))
        self._queues = [_Queue() for _ in range(topic.partitions)]

    async def open(self) -> None:
        """Connects to Kafka. Raises `DeliveryError` and `ConfigError`."""
        await self._producer.open((self._settings.segments_topic,))

    async def close(self) -> None:
        """Closes the connections. Records under way may still land."""
        await self._producer.close()

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

    def waited(self) -> float:
        """Returns the seconds for which the oldest batch under way has had no answer."""
        now = self._clock()
        return max((now - queue.since for queue in self._queues if queue.since is not None), default=0.0)

    def silence(self) -> str:
        """Returns why Kafka does not answer, as far as known."""
        return self._producer.silence()

    def failing(self) -> tuple[float, str]:
        """Returns the seconds in which all that was produced has failed, and why; 0 if nothing fails, or nothing was tried."""
        failed, now = self._failed, self._clock()
        return (now - failed.since, str(failed.error)) if failed and now - failed.last <= FAILED_TIME else (0.0, "")

    async def pump(self, partition: int) -> None:
        """Produces the records that are put, batch after batch, until it is cancelled."""
        queue, where = self._queues[partition], TopicPartition(self._settings.segments_topic, partition)
        while True:
            await queue.filled.wait()
            if queue.records and (turn := self._producer.turn(where)) is not None:
                await asyncio.wait({turn})  # records that are put meanwhile go with it
            if not queue.records:
                queue.filled.clear()
            else:
                await self._send(where, queue)

    async def _send(self, where: TopicPartition, queue: _Queue) -> None:
        """Produces one batch. From here on its records are either stored, or in doubt for ever."""
        batch = KeyedBatch(self._topic.batch_bytes(self._settings.batch_bytes))
        now_ms = time.time_ns() // 1_000_000
        while queue.records and batch.add(queue.records[0].key, queue.records[0].value, now_ms):
            queue.records.popleft()
        queue.since = self._clock()
        try:
            place = await self._producer.store(where, batch, queue.since + self._settings.ack_deadline)
        except DeliveryError as error:
            await self._give_up(where.partition, queue, error)
            return
        finally:
            queue.since = None
        self._failed = None
        if place.offset >= 0:  # else Kafka has stored it, and does not know the offset any more
            self._stored(where.partition, place.offset, batch.record_count())

    async def _give_up(self, partition: int, queue: _Queue, error: DeliveryError) -> None:
        """Ends the sessions of a partition: the records that wait there were not produced, and never will be."""
        self._failed = PartitionRefusal.again(self._failed, self._clock(), error)
        self._limited.warning("blocks were given up", partition=partition, problem=str(error))
        queue.records.clear()
        self._lost(partition)
        await asyncio.sleep(PAUSE)
