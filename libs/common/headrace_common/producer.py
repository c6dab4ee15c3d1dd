"""The Kafka producer that all pumps share, and its replacement.

With aiokafka a batch that fails for good leaves a hole in its partition's sequence, and the next batch there kills the
producer (seen with MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, authorisation); a batch whose partition has a leader is retried
for ever. So a producer is thrown away after every such failure, and what it had under way is sent again by a fresh one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerClosed
from aiokafka.structs import TopicPartition

from headrace_common.errors import DeliveryError
from headrace_common.kafka import CONNECT_TROUBLE, Topic, describe, explain, make_producer
from headrace_common.log import Log
from headrace_common.metrics import ReceiverMetrics
from headrace_common.settings import KafkaSettings

CLOSE_TIME: Final = 2.0
"""Seconds that a discarded producer may still use for what it has under way; then it is cut off."""

FIRST_PAUSE: Final = 0.1
LAST_PAUSE: Final = 5.0


class Producer:
    """One aiokafka producer's life. `gone` is done when nothing it had under way can be answered any more."""

    def __init__(self, client: AIOKafkaProducer) -> None:
        self.client = client
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.discarded = False

    async def close(self) -> None:
        """Closes it within `CLOSE_TIME`, or cuts it off. Never raises; whatever is wrong with it, those who wait for
        `gone` go on.
        """
        try:
            await asyncio.wait_for(self.client.stop(), CLOSE_TIME)
        except Exception:
            with contextlib.suppress(Exception):
                await self._cut()
        finally:
            if not self.gone.done():
                self.gone.set_result(None)

    async def _cut(self) -> None:
        # aiokafka has no bounded stop: its accumulator waits for batches that will never be answered.
        sender = self.client._sender.sender_task
        if sender is not None:
            sender.cancel()
        self.client._message_accumulator.fail_all(ProducerClosed())
        with contextlib.suppress(TimeoutError, KafkaError, OSError):
            await asyncio.wait_for(self.client.client.close(), CLOSE_TIME)
        if sender is not None:
            await asyncio.wait([sender], timeout=CLOSE_TIME)


class ProducerSource:
    """Hands out the current producer, makes a new one when it was discarded, and knows what the topics allow."""

    def __init__(self, settings: KafkaSettings, metrics: ReceiverMetrics, log: Log) -> None:
        self._settings = settings
        self._metrics = metrics
        self._log = log
        self._current: Producer | None = None
        self._starting: asyncio.Task[Producer] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self.events: Topic | None = None
        self.quarantine: Topic | None = None
        self.problem: str | None = "Kafka has not answered yet"

    @property
    def batch_bytes(self) -> int:
        """Largest batch before compression: three quarters of what the topic takes, so that it fits in any case."""
        assert self.events is not None
        return min(self._settings.batch_bytes, self.events.max_message_bytes * 3 // 4)

    def has_leader(self, partition: int) -> bool:
        """Whether the events topic's partition has a leader, as far as is known; true while nothing is known."""
        if self._current is None:
            return True
        topic = TopicPartition(self._settings.events_topic, partition)
        return self._current.client.client.cluster.leader_for_partition(topic) not in (None, -1)

    async def current(self) -> Producer:
        """The producer to use now. Waits, if need be for ever, until Kafka answers and the topics exist."""
        if self._current is not None:
            return self._current
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        return await asyncio.shield(self._starting)

    def discard(self, producer: Producer, why: str) -> None:
        """Throws `producer` away; its `gone` tells when. Later calls for the same one do nothing. Does not block."""
        if producer.discarded:
            return
        producer.discarded = True
        if self._current is producer:
            self._current = None
        self._metrics.producers_replaced.labels(why).inc()
        self._log.warning("producer replaced", why=why)
        task = asyncio.create_task(producer.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    @asynccontextmanager
    async def isolated(self) -> AsyncIterator[Producer]:
        """A producer of one's own, for batches that may be refused: their failure costs nobody else anything."""
        producer = await self._make()
        try:
            yield producer
        finally:
            producer.discarded = True
            await producer.close()

    async def refresh(self) -> None:
        """Asks Kafka again what the topics allow. Raises `DeliveryError`."""
        self.events, self.quarantine = await describe(self._settings)
        weak = {topic.name: topic.weak for topic in (self.events, self.quarantine) if topic.weak}
        self._metrics.topic_weak.set(1 if weak else 0)
        if weak:
            self._log.warning("topic settings do not keep the promise", topics=weak)

    async def close(self) -> None:
        """Closes everything, within a few times `CLOSE_TIME`."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        if self._current is not None:
            self._current.discarded = True
            await self._current.close()
            self._current = None
        if self._closing:
            await asyncio.wait(self._closing)

    async def _start(self) -> Producer:
        pause = FIRST_PAUSE
        try:
            while True:
                try:
                    await self.refresh()
                    self._current = await self._make()
                    if self.problem is not None:
                        self._log.info("kafka answers", bootstrap=self._settings.bootstrap_servers)
                    self.problem = None
                    return self._current
                except DeliveryError as error:
                    if self.problem != str(error):
                        self._log.warning("kafka is not usable", problem=str(error))
                    self.problem = str(error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LAST_PAUSE)
        finally:
            self._starting = None

    async def _make(self) -> Producer:
        producer = Producer(make_producer(self._settings, self.batch_bytes))
        try:
            with CONNECT_TROUBLE.told():
                await asyncio.wait_for(self._open(producer.client), self._settings.request_timeout)
        except (TimeoutError, KafkaError, OSError) as error:
            producer.discarded = True
            await producer.close()
            raise DeliveryError(
                f"Kafka at {self._settings.bootstrap_servers}: {explain(error)}", retriable=True
            ) from error
        return producer

    async def _open(self, client: AIOKafkaProducer) -> None:
        await client.start()
        await client.partitions_for(self._settings.events_topic)
        await client.partitions_for(self._settings.quarantine_topic)
