"""Kafka at `send_batch`: a log for each partition, idempotent producers, and whatever can go wrong between the two.

The broker's rules are Kafka's: a batch whose sequence was stored is answered and not stored again, one that comes too early is
refused. The producer's are aiokafka's: one batch of a partition under way at a time; what may be tried again is, for ever, while
the partition has a leader; a batch that fails for good leaves a hole, at which the next one kills the producer.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from aiokafka import errors
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from headrace_common.kafka.client import InvalidRecordError, Topic
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy
from headrace_common.operations.settings import KafkaSettings

from tests.simulation.loop import EPOCH, OWNER, WORLD, Mortal, SimulatedLoop
from tests.simulation.scenario import FATAL

RETRY_BACKOFF = 0.1
FORGETFUL = 0.3
"""Chance that a broker which has stored a batch before does not know any more where."""
BROKEN_END = 0.2
"""Chance that a producer which is cut off fails while it gives its batches up."""

AFTER = 0.5
"""Chance that a producer's end is said of a batch that is stored: by an answer to its second sending, the first was lost."""

CURSED = b"cursed"
"""A record whose value holds this is refused for its content."""
ODD = b"oddity"
"""A record whose value holds this makes the broker fail, and say no more."""

PASSING: tuple[type[Exception], ...] = (
    errors.NotLeaderForPartitionError,
    errors.NotEnoughReplicasError,
    errors.RequestTimedOutError,
    errors.KafkaStorageError,
    errors.UnknownTopicOrPartitionError,
)
"""aiokafka sends the batch again."""

FINAL: tuple[type[Exception], ...] = (
    errors.UnknownError,
    errors.TopicAuthorizationFailedError,
    errors.ClusterAuthorizationFailedError,
    errors.InvalidTimestampError,
    errors.InvalidProducerEpoch,
    errors.OutOfOrderSequenceNumber,
    errors.UnknownProducerId,
)
"""The batch fails for good."""


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
    answer: asyncio.Future[Any]
    """Whether its producer has heard that it is stored."""
    timestamp_type: int = 0


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
    quarantine_partitions: int = 2
    max_message_bytes: int = 1_048_588
    brokers: int = 1
    weather: Weather = field(default_factory=Weather)
    log: list[Stored] = field(default_factory=list)
    logs: dict[TopicPartition, list[Stored]] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    """Where the logs begin that do not at 0."""
    groups: dict[str, dict[TopicPartition, OffsetAndMetadata]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(lambda: OffsetAndMetadata(-1, "")))
    )
    """What consumer groups have committed."""
    commits_refused: bool = False
    waiting: dict[TopicPartition, set[asyncio.Event]] = field(default_factory=dict)
    """Who waits at the end of a log."""
    on_store: Callable[[Stored], None] = lambda record: None
    on_send: Callable[[Request], None] = lambda request: None
    producers: int = 0
    tell: Callable[[str], None] = lambda line: None

    def __post_init__(self) -> None:
        self._sequences: dict[tuple[int, str, int], int] = {}
        self.doubted: set[bytes] = set()
        """Values that met an unknown error by chance: after several, a receiver may take them for refused."""

    def has_leader(self, partition: int) -> bool:
        return not self.weather.down and partition not in self.weather.leaderless

    def later(self, work: Callable[..., None], *args: Any) -> None:
        """Whatever happens at the broker happens whether or not the one who asked is alive."""
        self.loop.call_later(self.chance.uniform(*self.weather.delay), work, *args, context=WORLD.copy())

    def produce(self, request: Request, reply: Callable[[Exception | None], None]) -> None:
        """A request has arrived. `reply` is not called when the answer is lost. `request.offset` says where it was stored."""
        weather, chance = self.weather, self.chance
        if weather.down or chance.random() < weather.silent:
            self.tell("kafka says nothing and stores nothing")
            return
        if weather.missing:
            self._sequences.clear()
            reply(errors.UnknownTopicOrPartitionError())
            return
        if not self.has_leader(request.partition):
            reply(errors.NotLeaderForPartitionError())
            return
        if chance.random() < weather.passing:
            reply(chance.choice(PASSING)())
            return
        error, after = self._judge(request), None
        ends = weather.quarantine_ends and request.topic.endswith("quarantine")
        if error is None and (ends or chance.random() < weather.final):
            error = chance.choice(FATAL if ends else weather.errors)()
            if isinstance(error, errors.UnknownError):
                self.doubted.update(record.value for record in request.records)
            elif isinstance(error, FATAL) and request.tries > 0 and chance.random() < AFTER:
                error, after = None, error
        if error is not None:
            self.tell(f"kafka refuses {request.count} records: {type(error).__name__}")
            reply(error)
            return
        where = (request.producer, request.topic, request.partition)
        expected = self._sequences.get(where, 0)
        if request.sequence > expected:
            reply(errors.OutOfOrderSequenceNumber())
            return
        if request.sequence == expected:
            self._sequences[where] = expected + request.count
            self._append(request)
        elif chance.random() < FORGETFUL:
            request.offset = -1
        if after is not None:
            self.tell(f"kafka stores, and says {type(after).__name__}")
            reply(after)
        elif chance.random() < weather.unheard:
            self.tell("kafka stores, and its answer is lost")
        elif chance.random() < weather.appended:
            reply(errors.NotEnoughReplicasAfterAppendError())
        else:
            reply(None)

    def _judge(self, request: Request) -> Exception | None:
        if len(request.data) > self.max_message_bytes:
            return errors.MessageSizeTooLargeError()
        if not request.topic.endswith("events"):
            return InvalidRecordError() if self.weather.spoilt and request.topic.endswith("quarantine") else None
        values = [record.value for record in request.records if record.value is not None]
        if any(CURSED in value for value in values):
            return InvalidRecordError()
        return errors.UnknownError() if any(ODD in value for value in values) else None

    def _append(self, request: Request) -> None:
        self.tell(f"kafka stores {request.count} records in {request.topic}/{request.partition}")
        where = TopicPartition(request.topic, request.partition)
        log = self.logs.setdefault(where, [])
        request.offset = len(log)
        for record in request.records:
            stored = Stored(
                request.topic,
                request.partition,
                len(log),
                request.producer,
                record.key,
                record.value,
                dict(record.headers),
                record.timestamp,
                request.answer,
            )
            log.append(stored)
            self.log.append(stored)
            self.on_store(stored)
        for news in self.waiting.get(where, ()):
            news.set()

    # In place of `headrace_common.kafka.client`

    async def describe(self, settings: KafkaSettings, also: Sequence[str] = ()) -> list[Topic]:
        await asyncio.sleep(self.chance.uniform(*self.weather.delay))
        if self.weather.down:
            await asyncio.sleep(1.0)
            raise DeliveryError("Kafka is down", DeliveryPolicy.RETRY)
        if self.weather.missing:
            raise DeliveryError("a topic is missing", DeliveryPolicy.RETRY)
        named = {settings.events_topic: self.partitions, settings.quarantine_topic: self.quarantine_partitions}
        names = [settings.events_topic, settings.quarantine_topic, *also]
        return [Topic(name, named.get(name, self.partitions), self.max_message_bytes) for name in names]

    def make_producer(self, settings: KafkaSettings, batch_bytes: int) -> SimulatedProducer:
        self.producers += 1
        return SimulatedProducer(self, self.producers, settings.request_timeout)


@dataclass
class Request:
    """A batch on its way to one partition."""

    producer: int
    topic: str
    partition: int
    data: bytes
    count: int
    answer: asyncio.Future[Request]
    since: float
    offset: int = -1
    timestamp_type = 0
    sequence: int = -1
    tries: int = 0

    def __post_init__(self) -> None:
        self.records = list(DefaultRecordBatch(self.data))


class SimulatedProducer:
    """As much of `AIOKafkaProducer` as Headrace uses; its parts are itself."""

    def __init__(self, broker: Broker, number: int, timeout: float) -> None:
        self._broker = broker
        self._loop = broker.loop
        self._number = number
        self._timeout = timeout
        self._queues: dict[tuple[str, int], deque[Request]] = {}
        self._sequences: dict[tuple[str, int], int] = {}
        self._error: Exception | None = None
        self._closed = self._is_cut = False
        owner = OWNER.get()
        assert owner is not None
        self._owner: Mortal = owner
        owner.producers += 1
        self.client = self.cluster = self._message_accumulator = self
        self._sender = SimpleNamespace(sender_task=None)

    async def start(self) -> None:
        await asyncio.sleep(self._broker.chance.uniform(*self._broker.weather.delay))
        if self._broker.weather.down:
            await asyncio.sleep(0.5)
            raise errors.KafkaConnectionError("nobody answers")

    async def partitions_for(self, topic: str) -> set[int]:
        return set(range(self._broker.partitions))

    async def stop(self) -> None:
        self._closed = True
        while self._queues:
            await asyncio.wait([request.answer for queue in self._queues.values() for request in queue])
            await asyncio.sleep(0)

    async def close(self) -> None:
        self._closed = True

    def fail_all(self, error: Exception) -> None:
        """As `MessageAccumulator.fail_all`, which Headrace calls when it cuts a producer off."""
        if self._closed and self._broker.chance.random() < BROKEN_END:
            self._is_cut = True  # as a client does whose end fails: what is under way is never answered
            raise RuntimeError("the client fails in its end")
        self._die(error)

    def _die(self, error: Exception) -> None:
        self._error = error
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            for request in queue:
                self._settle(request, error)

    def leader_for_partition(self, where: Any) -> int | None:
        return 1 if self._broker.has_leader(where.partition) else -1

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return (
            None
            if self._broker.weather.missing
            else set(range(max(self._broker.partitions, self._broker.quarantine_partitions)))
        )

    async def send(self, *request: Any) -> None: ...

    def force_metadata_update(self) -> asyncio.Future[bool]:
        done = self._loop.create_future()

        def answered() -> None:
            if not done.done():
                done.set_result(True)

        self._loop.call_later(0.01, answered)
        return done

    def create_batch(self) -> BatchBuilder:
        return BatchBuilder(1 << 20, 0)

    async def send_and_wait(self, topic: str, value: bytes | None, key: bytes, partition: int) -> None:
        batch = self.create_batch()
        batch.append(timestamp=int((EPOCH + self._loop.now) * 1000), key=key, value=value)
        await (await self.send_batch(batch, topic, partition=partition))

    async def send_batch(self, builder: Any, topic: str, *, partition: int) -> asyncio.Future[Request]:
        await asyncio.sleep(0)
        if self._closed:
            raise errors.ProducerClosed
        if self._error is not None:
            raise self._error
        data = bytes(builder._build())
        request = Request(
            self._number, topic, partition, data, builder.record_count(), self._loop.create_future(), self._loop.now
        )
        self._broker.on_send(request)
        queue = self._queues.setdefault((topic, partition), deque())
        queue.append(request)
        if len(queue) == 1:
            self._send(request)
        return asyncio.shield(request.answer)

    def _send(self, request: Request) -> None:
        """In the owner's context, as all that the producer itself does."""
        if request.answer.done() or self._is_cut:
            return
        where = (request.topic, request.partition)
        if not self._broker.has_leader(request.partition) and request.sequence < 0:
            if self._loop.now - request.since > self._timeout:
                self._settle(request, errors.LeaderNotAvailableError())
                return
            self._again(request)
            return
        if request.sequence < 0:
            request.sequence = self._sequences.get(where, 0)
            self._sequences[where] = request.sequence + request.count
        request.tries += 1
        attempt = request.tries

        def reply(error: Exception | None) -> None:
            self._loop.call_later(
                self._broker.chance.uniform(*self._broker.weather.delay),
                self._answered,
                request,
                attempt,
                error,
                context=self._owner.context.copy(),
            )

        self._broker.later(self._broker.produce, request, reply)
        self._loop.call_later(self._timeout, self._unanswered, request, attempt)

    def _again(self, request: Request) -> None:
        self._loop.call_later(RETRY_BACKOFF, self._send, request, context=self._owner.context.copy())

    def _unanswered(self, request: Request, attempt: int) -> None:
        if attempt == request.tries and not request.answer.done():
            request.tries += 1  # what comes now comes too late
            self._again(request)

    def _answered(self, request: Request, attempt: int, error: Exception | None) -> None:
        if attempt != request.tries or request.answer.done() or self._is_cut:
            return
        if error is not None and getattr(error, "retriable", False):
            request.tries += 1
            self._again(request)
            return
        if isinstance(error, FATAL):
            if isinstance(error, errors.InvalidProducerEpoch):
                error = errors.ProducerFenced()
            self._die(error)
            return
        self._settle(request, error)

    def _settle(self, request: Request, error: Exception | None) -> None:
        if not request.answer.done():
            if error is None:
                if request.topic.endswith("events"):
                    self._owner.confirmed += request.count
                elif request.topic.endswith("quarantine"):
                    self._owner.quarantined += request.count
                request.answer.set_result(request)
            else:
                request.answer.set_exception(error)
                request.answer.add_done_callback(lambda answer: answer.exception())
        where = (request.topic, request.partition)
        queue = self._queues.get(where)
        if queue and queue[0] is request:
            queue.popleft()
            if queue:
                self._send(queue[0])
            else:
                del self._queues[where]
