"""Stand-ins for what stands on both sides of a pump: frames and their receipts, producers and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import structlog
from aiokafka import errors
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.structs import TopicPartition
from headrace_common.connection.receiver_state import ReceiverState
from headrace_common.fairness.budget import Budget
from headrace_common.fairness.scheduler import Account, Scheduler
from headrace_common.kafka.client import Topic
from headrace_common.kafka.producer import Producer
from headrace_common.operations.errors import DeliveryError
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import KafkaSettings, LimitSettings
from headrace_common.publishing.in_flight import DeliveryListener
from headrace_common.record.contract import Reason
from headrace_common.record.event import Envelope, Event, Part, Reject
from headrace_common.session.interface import NO_BACKEND, Backend, Frame, Run, Ticket

from tests.common.slowly import slow_loop
from tests.contract.waiting import PATIENCE

LOOK = 0.001
"""Seconds between two looks of `until`: less than any deadline of these tests."""

NOW_MS = 1_700_000_000_000
MIB = 1 << 20
ENVELOPE = Envelope("forward", "/forward/test", "t")


def event(number: int, size: int = 10, *, attributes: bytes | None = None) -> Event:
    """An event whose id and value tell its number."""
    name = b"d.%032x" % number
    return ENVELOPE.event(name, b"2023-11-14T22:13:20Z", b'"%0*d"' % (size, number), attributes)


def reject(number: int, raw: bytes = b"raw") -> Reject:
    return ENVELOPE.reject(Reason.BAD_RECORD, "bad", raw, b"d.%032x" % number)


Made = Part | int | tuple[float, Part | int]
"""A part of a frame. A number is a pause; of a pair, the first are the seconds that making it takes."""


@dataclass
class FakeFrame(Frame):
    """A frame of given parts."""

    given: Sequence[Made]
    ticket: Ticket = 0
    size: int = 100
    acknowledged: bool = True
    received_ms: int = NOW_MS
    small: bool = False

    def runs(self) -> Iterator[Run]:
        for part in self.given:
            if isinstance(part, tuple):
                slow_loop().work(part[0])
                part = part[1]
            yield part

    def spoiled(self, detail: str) -> Reject:
        return ENVELOPE.reject(Reason.INTERNAL, detail, b"all of it", b"u." + b"f" * 32)


@dataclass
class FakeListener(DeliveryListener):
    """Writes down what it hears."""

    heard: list[tuple[Any, ...]] = field(default_factory=list)
    account: Account = field(default_factory=Account)

    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        self.heard.append(("stored", ticket, stored, whole))

    def abandoned(self, ticket: Ticket, error: DeliveryError) -> None:
        self.heard.append(("abandoned", ticket))

    def of(self, ticket: Ticket) -> list[tuple[Any, ...]]:
        return [line for line in self.heard if line[1] == ticket]


Answer = BaseException | None
"""What a fake broker says to a batch: None is stored."""


class StoredUnseen(BaseException):
    """The batch is stored, and the answer is another."""

    def __init__(self, said: Exception) -> None:
        super().__init__(said)
        self.said = said


@dataclass(frozen=True)
class Sent:
    """A batch as it was sent, and its identity."""

    where: TopicPartition
    identity: tuple[int, int]
    sequence: int
    values: list[bytes]
    data: bytes


class FakeBroker:
    """What Kafka says, and what it was sent. It knows each batch that it has stored by identity and sequence."""

    def __init__(self, script: Callable[[list[bytes]], Answer] = lambda values: None) -> None:
        self.script = script
        self.sent: list[Sent] = []
        self.stored: list[tuple[bytes, dict[str, bytes]]] = []
        self.leader: int = 1
        self.identities = 0
        self.requests = 0
        self.open = asyncio.Event()
        """It answers requests."""
        self.open.set()
        self.known: set[tuple[tuple[int, int], TopicPartition, int]] = set()

    def said(self, sent: Sent, headers: list[dict[str, bytes]]) -> Answer:
        """Stores a batch that it does not know, or not. Returns its answer."""
        said = self.script(sent.values)
        self.sent.append(sent)
        name = (sent.identity, sent.where, sent.sequence)
        if (said is None or isinstance(said, StoredUnseen)) and name not in self.known:
            self.known.add(name)
            self.stored += zip(sent.values, headers, strict=True)
        return said.said if isinstance(said, StoredUnseen) else said


class FakeClient:
    """As much of `AIOKafkaClient` as the producer uses; its broker's `script` decides on each batch, by its values."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.cluster = self

    async def bootstrap(self) -> None: ...

    async def set_topics(self, topics: Sequence[str]) -> None: ...

    async def close(self) -> None: ...

    def get_random_node(self) -> int:
        return 1

    def leader_for_partition(self, where: TopicPartition) -> int:
        return self.broker.leader

    def force_metadata_update(self) -> asyncio.Future[bool]:
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        done.set_result(True)
        return done

    async def send(self, node: int, request: Any) -> Any:
        if not isinstance(request, ProduceRequest):
            self.broker.identities += 1
            return SimpleNamespace(error_code=0, producer_id=self.broker.identities)
        self.broker.requests += 1
        topics = []
        for topic, partitions in request._topics:
            answers = []
            for partition, data in partitions:
                batch = DefaultRecordBatch(data)
                identity = batch.producer_id, batch.producer_epoch
                records = list(batch)
                values = [record.value or b"" for record in records]
                sent = Sent(TopicPartition(topic, partition), identity, batch.base_sequence, values, data)
                answer = self.broker.said(sent, [dict(record.headers) for record in records])
                if isinstance(answer, Exception) and not isinstance(answer, errors.BrokerResponseError):
                    raise answer
                code = answer.errno if isinstance(answer, errors.BrokerResponseError) else 0
                answers.append((partition, code, len(self.broker.stored), -1))
            topics.append((topic, answers))
        await self.broker.open.wait()
        return SimpleNamespace(throttle_time_ms=0, topics=topics)


def producer_of(broker: FakeBroker) -> Producer:
    """A producer that is open."""
    producer = Producer(KafkaSettings())
    producer._client = FakeClient(broker)
    return producer


async def until(condition: Callable[..., object]) -> None:
    """Lets others run, and time pass, until something is seen."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110  (the fakes set no events)
            await asyncio.sleep(LOOK)


class FakeTopics:
    """Topics as Kafka describes them; `refreshed` may change them."""

    def __init__(self) -> None:
        self.events = Topic("events", 4, 4 * MIB)
        self.quarantine = Topic("quarantine", 3, 4 * MIB)
        self.required: Sequence[str] = ()
        self.refreshed: Callable[[], None] = lambda: None

    def named(self, name: str) -> Topic:
        return self.quarantine if name == self.quarantine.name else self.events

    async def refresh(self) -> None:
        self.refreshed()


class FakePublisher:
    """Writes down what is published. `keyed`: where keys lead."""

    def __init__(self) -> None:
        self.submitted: list[tuple[Frame, DeliveryListener]] = []
        self.keyed: dict[bytes, FakePublisher] = {}

    def choose(self) -> FakePublisher:
        return self

    def of(self, ordering_key: bytes) -> FakePublisher:
        return self.keyed.get(ordering_key, self)

    def publish(self, frame: Frame, listener: DeliveryListener) -> None:
        self.submitted.append((frame, listener))


def receiver_state(
    publisher: FakePublisher,
    limits: LimitSettings,
    scheduler: Scheduler | None = None,
    budget: Budget | None = None,
    backend: Backend = NO_BACKEND,
) -> ReceiverState:
    """What the connections of a service share."""
    return ReceiverState(
        publisher=publisher,  # type: ignore[arg-type]
        budget=budget or Budget(limits.process_budget, limits.connection_budget),
        scheduler=scheduler or Scheduler(),
        limits=limits,
        metrics=ReceiverMetrics(),
        log=structlog.get_logger(),
        backend=backend,
    )
