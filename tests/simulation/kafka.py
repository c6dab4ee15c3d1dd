"""Kafka at its ProduceRequests: a log for each partition, producers' identities and sequences, and whatever can go wrong between.

The broker's rules are Kafka's: it knows the last five batches of a producer in a partition, confirms one of them without storing
it again, and refuses one that is neither of these nor the next.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from aiokafka import errors
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.structs import TopicPartition
from headrace_common.kafka.client import InvalidRecordError, Topic
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy
from headrace_common.operations.settings import KafkaSettings

from tests.simulation.loop import OWNER, WORLD, Mortal, SimulatedLoop
from tests.simulation.scenario import FATAL

FORGETFUL = 0.3
"""Chance that a broker which has stored a batch before does not know any more where."""
FENCES = 0.2
"""Chance that a broker refuses a producer from now on that sends a batch again: another one has its id."""
REFUSES = 0.5
"""Chance that a broker which is down takes no connection; else it takes the request and is silent."""
REMEMBERED = 5
"""Batches of a producer that a partition knows."""

CURSED = b"cursed"
"""A record whose value holds this is refused for its content."""

PASSING: tuple[type[Exception], ...] = (
    errors.NotLeaderForPartitionError,
    errors.NotEnoughReplicasError,
    errors.RequestTimedOutError,
    errors.KafkaStorageError,
    errors.UnknownTopicOrPartitionError,
)
"""The same batch may be stored later."""

FINAL: tuple[type[Exception], ...] = (
    errors.UnknownError,
    errors.TopicAuthorizationFailedError,
    errors.ClusterAuthorizationFailedError,
    errors.InvalidTimestampError,
    *FATAL,
)
"""The batch is refused, or its identity."""

AFTER = (errors.NotEnoughReplicasAfterAppendError, errors.NotLeaderForPartitionError, errors.RequestTimedOutError)
"""Said of a batch that is stored."""


@dataclass(frozen=True)
class Stored:
    """One record of the log."""

    topic: str
    partition: int
    offset: int
    producer: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]
    timestamp: int


@dataclass
class Weather:
    """What the broker does now. Chances are of each request; `leaderless`: partitions of every topic."""

    delay: tuple[float, float] = (0.0005, 0.004)
    down: bool = False
    """Nothing is answered, and nobody connects."""
    silent: float = 0.0
    """Neither stored nor answered."""
    unheard: float = 0.0
    """Stored, and the answer is lost: the request runs into its time limit."""
    appended: float = 0.0
    """Stored, and answered with an error that says so."""
    passing: float = 0.0
    final: float = 0.0
    errors: Sequence[type[Exception]] = FINAL
    spoilt: bool = False
    """The quarantine topic refuses each record for its content."""
    quarantine_ends: bool = False
    """It ends each producer that sends to it."""
    leaderless: frozenset[int] = frozenset()
    missing: bool = False
    """The topics are deleted; they are empty when they are there again."""


@dataclass
class Broker:
    """The cluster."""

    loop: SimulatedLoop
    chance: random.Random
    partitions: int = 2
    max_message_bytes: int = 1_048_588
    weather: Weather = field(default_factory=Weather)
    log: list[Stored] = field(default_factory=list)
    logs: dict[TopicPartition, list[Stored]] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    """Where the logs begin that do not at 0."""
    on_store: Callable[[Stored], None] = lambda record: None
    producers: int = 0
    tell: Callable[[str], None] = lambda line: None

    def __post_init__(self) -> None:
        self._known: dict[tuple[int, int, TopicPartition], deque[Request]] = {}
        self._fenced: set[int] = set()
        self._epochs: dict[tuple[int, TopicPartition], int] = {}
        """The highest epoch of a producer in a partition: Kafka refuses lower ones."""

    def has_leader(self, partition: int) -> bool:
        return not self.weather.down and partition not in self.weather.leaderless

    def later(self, work: Callable[..., None], *args: Any) -> None:
        """Whatever happens at the broker happens whether or not the one who asked is alive."""
        self.loop.call_later(self.chance.uniform(*self.weather.delay), work, *args, context=WORLD.copy())

    def produce(self, batches: Sequence[Request], reply: Callable[[list[Exception | None]], None]) -> None:
        """A request has arrived. `reply` is not called when the answer is lost."""
        weather, chance = self.weather, self.chance
        if weather.down or chance.random() < weather.silent:
            self.tell("kafka says nothing and stores nothing")
            return
        answers = [self._produce(batch) for batch in batches]
        if chance.random() < weather.unheard:
            self.tell("kafka's answer is lost")
        else:
            reply(answers)

    def _produce(self, batch: Request) -> Exception | None:
        weather, chance = self.weather, self.chance
        if weather.missing:
            self._known.clear()
            return errors.UnknownTopicOrPartitionError()
        if not self.has_leader(batch.where.partition):
            return errors.NotLeaderForPartitionError()
        if chance.random() < weather.passing:
            return chance.choice(PASSING)()
        error = self._judge(batch)
        ends = weather.quarantine_ends and batch.where.topic.endswith("quarantine")
        if error is None and (ends or chance.random() < weather.final):
            error = chance.choice(FATAL if ends else weather.errors)()
        if error is None:
            error = self._sequenced(batch)
        if error is not None:
            self.tell(f"kafka refuses {batch.count} records: {type(error).__name__}")
        elif chance.random() < weather.appended:
            return chance.choice(AFTER)()
        return error

    def _sequenced(self, batch: Request) -> Exception | None:
        """Stores a batch that is the next of its producer, or knows it."""
        if batch.where.topic.endswith("segments"):
            newest = self._epochs.setdefault((batch.producer, batch.where), batch.epoch)
            if batch.epoch < newest:
                return errors.InvalidProducerEpoch()
            if batch.epoch > newest and batch.sequence:
                return errors.OutOfOrderSequenceNumber()
            self._epochs[batch.producer, batch.where] = batch.epoch
        known = self._known.setdefault((batch.producer, batch.epoch, batch.where), deque(maxlen=REMEMBERED))
        again = known and batch.sequence <= known[-1].sequence
        if (
            again
            and not batch.where.topic.endswith("segments")
            and self.weather.unheard < 1
            and self.chance.random() < FENCES
        ):
            self._fenced.add(batch.producer)
        if batch.producer in self._fenced:
            return errors.InvalidProducerEpoch()
        for before in known:
            if (before.sequence, before.count) == (batch.sequence, batch.count):
                batch.offset = -1 if self.chance.random() < FORGETFUL else before.offset
                return None
        expected = known[-1].sequence + known[-1].count if known else batch.sequence * (self.chance.random() < 0.5)
        if batch.sequence != expected:
            return errors.OutOfOrderSequenceNumber()
        known.append(batch)
        self._append(batch)
        return None

    def _judge(self, request: Request) -> Exception | None:
        topic = request.where.topic
        if len(request.data) > self.max_message_bytes:
            return errors.MessageSizeTooLargeError()
        if not topic.endswith("events"):
            return InvalidRecordError() if self.weather.spoilt and topic.endswith("quarantine") else None
        values = [record.value for record in request.records if record.value is not None]
        return InvalidRecordError() if any(CURSED in value for value in values) else None

    def _append(self, request: Request) -> None:
        where = request.where
        self.tell(f"kafka stores {request.count} records in {where.topic}/{where.partition}")
        log = self.logs.setdefault(where, [])
        request.offset = len(log)
        for record in request.records:
            stored = Stored(
                where.topic,
                where.partition,
                len(log),
                request.producer,
                record.key,
                record.value,
                dict(record.headers),
                record.timestamp,
            )
            log.append(stored)
            self.log.append(stored)
            self.on_store(stored)

    async def waits(self) -> None:
        """As long as a message takes."""
        await asyncio.sleep(self.chance.uniform(*self.weather.delay))

    # In place of `headrace_common.kafka.client`

    async def describe(self, settings: KafkaSettings, also: Sequence[str] = ()) -> list[Topic]:
        await self.waits()
        if self.weather.down:
            await asyncio.sleep(1.0)
            raise DeliveryError("Kafka is down", DeliveryPolicy.RETRY)
        if self.weather.missing:
            raise DeliveryError("a topic is missing", DeliveryPolicy.RETRY)
        fixed = {settings.quarantine_topic: 2, settings.segments_topic: 1}
        names = [settings.events_topic, settings.quarantine_topic, *also]
        return [Topic(name, fixed.get(name, self.partitions), self.max_message_bytes) for name in names]

    def make_client(self, settings: KafkaSettings) -> SimulatedClient:
        return SimulatedClient(self, settings.request_timeout)


class Request:
    """A batch on its way to one partition."""

    def __init__(self, where: TopicPartition, data: bytes) -> None:
        batch = DefaultRecordBatch(data)
        self.where = where
        self.data = data
        self.records = list(batch)
        self.count = len(self.records)
        self.producer: int = batch.producer_id
        self.epoch: int = batch.producer_epoch
        self.sequence: int = batch.base_sequence
        self.offset = -1


class SimulatedClient:
    """As much of `AIOKafkaClient` as Headrace uses; its cluster is itself, and has one broker."""

    NODE = 1

    def __init__(self, broker: Broker, timeout: float) -> None:
        self._broker = broker
        self._loop = broker.loop
        self._timeout = timeout
        owner = OWNER.get()
        assert owner is not None
        self._owner: Mortal = owner
        self.cluster = self

    async def bootstrap(self) -> None:
        await self._broker.waits()
        if self._broker.weather.down:
            await asyncio.sleep(0.5)
            raise errors.KafkaConnectionError("nobody answers")

    async def set_topics(self, topics: Sequence[str]) -> None:
        await self._broker.waits()

    async def close(self) -> None: ...

    def get_random_node(self) -> int:
        return self.NODE

    def leader_for_partition(self, where: TopicPartition) -> int:
        return self.NODE if self._broker.has_leader(where.partition) else -1

    def force_metadata_update(self) -> asyncio.Future[bool]:
        return asyncio.create_task(asyncio.sleep(0.01, True))

    async def send(self, node: int, request: Any) -> Any:
        assert node == self.NODE
        broker = self._broker
        if broker.weather.down and broker.chance.random() < REFUSES:
            await self._broker.waits()
            raise errors.NodeNotReadyError("nobody answers")
        if not isinstance(request, ProduceRequest):
            return await self._identity()
        batches = [
            Request(TopicPartition(topic, partition), data)
            for topic, partitions in request._topics
            for partition, data in partitions
        ]
        answer = self._loop.create_future()

        def reply(errors: list[Exception | None]) -> None:
            pause = broker.chance.uniform(*broker.weather.delay)
            self._loop.call_later(pause, self._answered, answer, batches, errors, context=self._owner.context.copy())

        broker.later(broker.produce, batches, reply)
        try:
            return await asyncio.wait_for(answer, self._timeout)
        except TimeoutError:
            raise errors.RequestTimedOutError from None

    async def _identity(self) -> SimpleNamespace:
        await self._broker.waits()
        if self._broker.weather.down:
            await asyncio.sleep(self._timeout)
            raise errors.RequestTimedOutError
        self._broker.producers += 1
        return SimpleNamespace(error_code=0, producer_id=self._broker.producers)

    def _answered(
        self, answer: asyncio.Future[SimpleNamespace], batches: Sequence[Request], found: list[Exception | None]
    ) -> None:
        if answer.done():
            return
        topics: dict[str, list[tuple[int, int, int, int]]] = {}
        for batch, error in zip(batches, found, strict=True):
            code = 0 if error is None else getattr(error, "errno", -1)
            topics.setdefault(batch.where.topic, []).append((batch.where.partition, code, batch.offset, -1))
            self._owner.troubled |= error is not None
            if error is None:
                if batch.where.topic.endswith("events"):
                    self._owner.confirmed += batch.count
                elif batch.where.topic.endswith("quarantine"):
                    self._owner.quarantined += batch.count
        answer.set_result(SimpleNamespace(throttle_time_ms=0, topics=list(topics.items())))
