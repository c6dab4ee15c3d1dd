"""The Kafka producer that all pumps share, and its replacement.

In aiokafka, a batch that fails for good leaves a hole in its partition's sequence, and the next batch there kills the producer
(seen with MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, authorisation). A batch whose partition has a leader is retried for ever. So
every such failure discards the producer, and a fresh one sends its unanswered batches again.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, ProducerClosed
from aiokafka.structs import TopicPartition
from typing_extensions import override

from headrace_common.kafka.client import CONNECT_TROUBLE, Topic, describe, explain, make_producer
from headrace_common.kafka.turns import Turns
from headrace_common.operations.errors import ConfigError, DeliveryError, DeliveryPolicy
from headrace_common.operations.log import Log, RateLimited
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import KafkaSettings

CLOSE_TIME: Final = 2.0
"""Seconds that a discarded producer may still spend on its unanswered batches; then it is cut off."""

LEAST: Final = 1 << 10
"""A batch may have this many bytes, however little the topic takes."""

WHY: Final = {
    DeliveryPolicy.CLOCK: "clock",
    DeliveryPolicy.POISON: "record_refused",
    DeliveryPolicy.UNKNOWN: "unknown",
    DeliveryPolicy.RETRY: "failed",
    DeliveryPolicy.REFUSED: "refused",
}
"""Why a producer is replaced: the metric's label."""

LASTING: Final = (DeliveryPolicy.REFUSED, DeliveryPolicy.CLOCK)
"""Policies that hold for the next producer as well, whatever it sends."""

FIRST_PAUSE: Final = 0.1
LAST_PAUSE: Final = 5.0
LEADER_PAUSE: Final = 0.5


class Producer:
    """The life of one aiokafka producer. `gone` is done once none of its batches can be answered any more."""

    def __init__(self, client: AIOKafkaProducer) -> None:
        self.client = client
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.discarded = False
        self.stored = False
        """Kafka has stored a batch of it."""

    async def close(self) -> None:
        """Closes it within `CLOSE_TIME`, or cuts it off. Never raises: `gone` is set in any case."""
        try:
            await asyncio.wait_for(self.client.stop(), CLOSE_TIME)
        except Exception:
            with contextlib.suppress(Exception):
                await self._cut()
        finally:
            if not self.gone.done():
                self.gone.set_result(None)

    async def _cut(self) -> None:
        # aiokafka has no bounded stop: its accumulator waits for batches that Kafka will never answer.
        sender = self.client._sender.sender_task
        if sender is not None:
            sender.cancel()
        self.client._message_accumulator.fail_all(ProducerClosed())
        with contextlib.suppress(TimeoutError, KafkaError, OSError):
            await asyncio.wait_for(self.client.client.close(), CLOSE_TIME)
        if sender is not None:
            await asyncio.wait([sender], timeout=CLOSE_TIME)


def leader(producer: Producer, where: TopicPartition) -> int | None:
    """Returns the broker that leads a partition, as far as the producer's client knows; None if it has no leader."""
    found: int | None = producer.client.client.cluster.leader_for_partition(where)
    return None if found == -1 else found


def has_leader(producer: Producer, where: TopicPartition) -> bool:
    """Returns whether a partition has a leader, as far as the producer's client knows."""
    return leader(producer, where) is not None


async def look_for_leader(producer: Producer, topic: str) -> int:
    """Asks the brokers again for the leaders. Takes at most `LEADER_PAUSE`, which is also a fit pause until the next call.

    Returns how many partitions `topic` has by now; 0 if it does not exist.
    """
    client = producer.client.client
    await asyncio.wait({client.force_metadata_update()}, timeout=LEADER_PAUSE)
    return len(client.cluster.partitions_for_topic(topic) or ())


def leave_unheard(answer: asyncio.Future[object]) -> None:
    """Retrieves the exception of an answer that is awaited no more, so that asyncio does not log it as never retrieved."""
    answer.add_done_callback(_retrieve)


def _retrieve(answer: asyncio.Future[object]) -> None:
    if not answer.cancelled():
        answer.exception()


class ReplaceableProducer(ABC):
    """Provides the current producer of some topics, and makes a fresh one after it was retired."""

    def __init__(self, settings: KafkaSettings, metrics: ReceiverMetrics, log: Log) -> None:
        self._settings = settings
        self._metrics = metrics
        self._log = log
        self._limited = RateLimited(log)
        self._current: Producer | None = None
        self._starting: asyncio.Task[Producer] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._has_answered = False
        self._closed = False
        self._pause = 0.0  # before the next one starts
        self._turns = Turns()
        self._throttled_until = 0.0  # event loop time
        self.problem: str | None = None
        """Why Kafka is not usable now."""

    @property
    @abstractmethod
    def batch_bytes(self) -> int:
        """Largest batch before compression."""

    @abstractmethod
    def _topics(self) -> Sequence[str]:
        """Returns the topics that the producer must know before it is used."""

    async def refresh(self) -> None:
        """Looks at the topics again, before each fresh producer. Raises `DeliveryError` and `ConfigError`."""
        self._has_answered = True

    @property
    def usable(self) -> Producer | None:
        """The producer that `current` would return at once."""
        return None if self._closed else self._current

    async def current(self) -> Producer:
        """Returns the producer to use now. Waits, without limit, until Kafka answers and the topics exist. Whatever goes wrong,
        it tries again. Raises `ConfigError` only before Kafka has answered for the first time. After `close`, waits to be
        cancelled.
        """
        if self._closed:
            await asyncio.get_running_loop().create_future()
        if self._current is not None:
            return self._current
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        return await asyncio.shield(self._starting)

    def turn(self, topic: str, partition: int) -> asyncio.Future[None] | None:
        """Returns a future that is done when a batch for this partition, handed over now, would be sent. See `Turns.next`."""
        broker = None if self._current is None else leader(self._current, TopicPartition(topic, partition))
        return None if broker is None else self._turns.next(broker)

    def taken(self, producer: Producer, topic: str, partition: int) -> AbstractContextManager[None]:
        """Counts a batch for this partition as under way inside the block."""
        where = TopicPartition(topic, partition)
        broker = leader(producer, where)
        return nullcontext() if broker is None or producer.discarded else self._turns.taken(broker, where)

    def recount(self) -> None:
        """Lets no batch wait for the answer to one whose partition has lost its leader: that one waits in the client."""
        if self._current is not None:
            self._turns.recount(partial(leader, self._current))

    def silence(self) -> str:
        """Returns why Kafka does not answer, as far as known."""
        throttled = asyncio.get_running_loop().time() < self._throttled_until
        return "a quota of Kafka's is used up" if throttled else "no answer"

    def _heed_quotas(self, client: AIOKafkaClient) -> None:
        """Takes from each answer how long the broker will not read the next request (KIP-219). aiokafka drops that time."""
        send = client.send

        async def heard(*arguments: Any, **options: Any) -> Any:
            answer = await send(*arguments, **options)
            if throttled := getattr(answer, "throttle_time_ms", 0) / 1000:
                self._metrics.kafka_throttled.inc(throttled)
                until = asyncio.get_running_loop().time() + throttled
                self._throttled_until = max(self._throttled_until, until)
            return answer

        client.send = heard

    def _retire(self, producer: Producer, why: str, *, rarely: bool) -> bool:
        """Closes `producer` in the background; its `gone` says when it has ended. False: it was retired before.

        With `rarely` the next one starts after a pause if this one has stored nothing: otherwise a producer that is refused
        everything would be replaced for each frame that a client sends again.
        """
        if producer.discarded:
            return False
        producer.discarded = True
        self._pause = min(max(FIRST_PAUSE, 2 * self._pause), LAST_PAUSE) if rarely and not producer.stored else 0.0
        if self._current is producer:
            self._current = None
            self._turns.forget()
        self._metrics.producers_replaced.labels(why).inc()
        task = asyncio.create_task(producer.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return True

    async def close(self) -> None:
        """Closes everything, within a few times `CLOSE_TIME`."""
        self._closed = True
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
            await asyncio.sleep(self._pause)
            while True:
                try:
                    await self.refresh()
                    self._current = await self._make()
                    if self.problem is not None:
                        self._log.info("kafka answers", bootstrap=self._settings.bootstrap_servers)
                    self.problem = None
                    return self._current
                except DeliveryError as error:
                    self._unusable(str(error))
                except ConfigError as error:  # a CA file that was there at the start may come back
                    if not self._has_answered:
                        raise
                    self._unusable(str(error))
                except Exception as error:
                    self._unusable(f"{type(error).__name__}: {error}", unforeseen=True)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LAST_PAUSE)
        finally:
            self._starting = None

    def _unusable(self, problem: str, *, unforeseen: bool = False) -> None:
        """Notes why Kafka is not usable now. `unforeseen`: call it in an `except` clause, whose traceback is logged."""
        if self.problem != problem:
            say = self._log.exception if unforeseen else self._log.warning
            say("kafka is not usable", problem=problem)
        self.problem = problem

    async def _make(self) -> Producer:
        producer = Producer(make_producer(self._settings, self.batch_bytes))
        self._heed_quotas(producer.client.client)
        try:
            with CONNECT_TROUBLE.told():
                await asyncio.wait_for(self._open(producer.client), self._settings.request_timeout)
        except BaseException as error:
            producer.discarded = True
            await producer.close()
            if not isinstance(error, TimeoutError | KafkaError | OSError):
                raise
            raise DeliveryError(
                f"Kafka at {self._settings.bootstrap_servers}: {explain(error)}", DeliveryPolicy.RETRY
            ) from error
        return producer

    async def _open(self, client: AIOKafkaProducer) -> None:
        await client.start()
        for topic in self._topics():
            await client.partitions_for(topic)


class ProducerSource(ReplaceableProducer):
    """The producer of events and quarantine, which all pumps share. Knows the topics' limits."""

    def __init__(self, settings: KafkaSettings, metrics: ReceiverMetrics, log: Log) -> None:
        super().__init__(settings, metrics, log)
        self.events: Topic | None = None
        self.quarantine: Topic | None = None
        self.required: Sequence[str] = ()
        """The service's own topics, which must exist too."""
        self.own: dict[str, Topic] = {}
        """The service's own topics as Kafka describes them, by name."""
        self.problem = "Kafka has not answered yet"

    @property
    @override
    def batch_bytes(self) -> int:
        """Three quarters of the topic's limit, so that a batch always fits; never nothing."""
        assert self.events is not None
        return min(self._settings.batch_bytes, max(LEAST, self.events.max_message_bytes * 3 // 4))

    def max_event_bytes(self) -> int:
        """Returns the `max.message.bytes` of the events topic, as Kafka described it last."""
        assert self.events is not None
        return self.events.max_message_bytes

    def max_quarantine_bytes(self) -> int:
        """Returns the `max.message.bytes` of the quarantine topic, likewise."""
        assert self.quarantine is not None
        return self.quarantine.max_message_bytes

    def has_leader(self, partition: int) -> bool:
        """Returns whether a partition of the events topic has a leader, as far as known; true while nothing is known."""
        if self._current is None:
            return True
        return has_leader(self._current, TopicPartition(self._settings.events_topic, partition))

    @override
    def _topics(self) -> Sequence[str]:
        return self._settings.events_topic, self._settings.quarantine_topic

    def discard(self, producer: Producer, error: DeliveryError) -> None:
        """Discards `producer` for `error`; its `gone` says when it has ended. Further calls for it do nothing. Does not block.

        After a refused record the next one starts without a pause: all other frames, and the search for the record, need it.
        """
        why = WHY[error.policy]
        if self._retire(producer, why, rarely=error.policy in LASTING):
            self._limited.warning("producer replaced", why=why, problem=str(error))

    @asynccontextmanager
    async def isolated(self) -> AsyncIterator[Producer]:
        """Gives a separate producer for batches that Kafka may refuse, so that a failure does not affect the shared one. Raises
        `DeliveryError` if there is none now.
        """
        try:
            producer = await self._make()
        except DeliveryError:
            raise
        except Exception as error:
            raise DeliveryError(f"{type(error).__name__}: {error}", DeliveryPolicy.RETRY) from error
        try:
            yield producer
        finally:
            producer.discarded = True
            await producer.close()

    @override
    async def refresh(self) -> None:
        """Reads the topics' limits from Kafka again. Raises `DeliveryError` and `ConfigError`."""
        topics = await describe(self._settings, self.required)
        await super().refresh()
        self.events, self.quarantine = topics[:2]
        self.own = {topic.name: topic for topic in topics[2:]}
        weak = {topic.name: topic.weak for topic in topics if topic.weak}
        self._metrics.topic_weak.set(1 if weak else 0)
        if weak:
            self._log.warning("topic settings do not keep the promise", topics=weak)
