"""Stand-ins for what stands on both sides of a pump: frames and their receipts, producers and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.structs import TopicPartition
from headrace_common.connection.backend import NO_BACKEND, Backend
from headrace_common.connection.receiver_state import ReceiverState
from headrace_common.fairness.budget import Budget
from headrace_common.fairness.scheduler import FairScheduler
from headrace_common.fairness.workers import Account
from headrace_common.kafka.client import Topic
from headrace_common.kafka.producer import WHY
from headrace_common.kafka.turns import Turns
from headrace_common.operations.errors import DeliveryError
from headrace_common.operations.log import RateLimited
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import LimitSettings
from headrace_common.publishing.in_flight import DeliveryListener, InFlightFrame
from headrace_common.record.contract import Reason
from headrace_common.record.event import Envelope, Event, Part, Reject
from headrace_common.session.interface import Frame, Pause, Ticket, singly

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


Made = Part | int | Exception | list[Part] | tuple[float, Part | int]
"""A part or a run of parts of a frame. An exception is raised in its place, a number is a pause; of a pair, the first are the
seconds that making it takes.
"""


@dataclass
class FakeFrame(Frame):
    """A frame of given parts. `begun`: how often they were asked for."""

    given: Sequence[Made]
    ticket: Ticket = 0
    size: int = 100
    acknowledged: bool = True
    received_ms: int = NOW_MS
    small: bool = False
    begun: int = 0

    def parts(self) -> Iterator[Part | Pause]:
        return singly(self.runs())

    def runs(self) -> Iterator[Part | Pause | list[Part]]:
        self.begun += 1
        for part in self.given:
            if isinstance(part, tuple):
                slow_loop().work(part[0])
                part = part[1]
            if isinstance(part, Exception):
                raise part
            yield Pause(part) if isinstance(part, int) else part

    def spoiled(self, detail: str) -> Reject:
        return ENVELOPE.reject(Reason.INTERNAL, detail, b"all of it", b"u." + b"f" * 32)


@dataclass
class FakeListener(DeliveryListener):
    """Writes down what it hears."""

    heard: list[tuple[Any, ...]] = field(default_factory=list)
    errors: dict[Ticket, DeliveryError] = field(default_factory=dict)
    account: Account = field(default_factory=Account)

    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        self.heard.append(("stored", ticket, stored, whole))

    def abandoned(self, ticket: Ticket, error: DeliveryError) -> None:
        self.heard.append(("abandoned", ticket))
        self.errors[ticket] = error

    def of(self, ticket: Ticket) -> list[tuple[Any, ...]]:
        return [line for line in self.heard if line[1] == ticket]


def in_flight(frame: FakeFrame) -> InFlightFrame:
    return InFlightFrame(frame, FakeListener(), 0.0, 1e12)


Answer = BaseException | None
"""What a fake broker says to a batch: None is stored; an exception, or silence (`SILENCE`)."""

SILENCE = BaseException("no answer")


class StoredUnseen(BaseException):
    """The batch is stored, and the answer is another: a first attempt's answer was lost, `said` answers the second."""

    def __init__(self, said: Exception) -> None:
        super().__init__(said)
        self.said = said


class FakeClient:
    """As much of aiokafka's producer as `Delivery` uses; `script` decides on each batch, by its values."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.client = self
        self.cluster = self
        self.answers: list[asyncio.Future[Any]] = []

    def leader_for_partition(self, partition: Any) -> int | None:
        return self.broker.leader if partition.partition < self.broker.led else -1

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return None if self.broker.there is None else set(range(self.broker.there))

    def force_metadata_update(self) -> asyncio.Future[bool]:
        self.broker.metadata_updates += 1
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        done.set_result(True)
        return done

    async def send_batch(self, batch: Any, topic: str, *, partition: int) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        records = list(DefaultRecordBatch(bytes(batch._build())))
        values = [record.value for record in records]
        said = self.broker.script(values)
        self.broker.sent.append((self, topic, partition, values))
        if said is None or isinstance(said, StoredUnseen):
            self.broker.stored += [(record.value, dict(record.headers)) for record in records]
        if isinstance(said, StoredUnseen):
            answer.set_exception(said.said)
        elif said is None:
            answer.set_result(object())
        elif said is not SILENCE:
            answer.set_exception(said)
        self.answers.append(answer)
        return answer


class FakeBroker:
    """What Kafka says, and what it was sent."""

    def __init__(self, script: Callable[[list[bytes]], Answer] = lambda values: None) -> None:
        self.script = script
        self.sent: list[tuple[FakeClient, str, int, list[bytes]]] = []
        self.stored: list[tuple[bytes, dict[str, bytes]]] = []
        self.leader: int | None = 1
        self.led = 100
        """Partitions from this one on have no leader."""
        self.there: int | None = 100
        """How many partitions each topic has."""
        self.metadata_updates = 0

    @property
    def values(self) -> list[bytes]:
        return [value for value, _ in self.stored]


async def until(condition: Callable[..., object]) -> None:
    """Lets others run, and time pass, until something is seen."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110  (the fakes set no events)
            await asyncio.sleep(LOOK)


class FakeProducer:
    def __init__(self, broker: FakeBroker) -> None:
        self.client = FakeClient(broker)
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.discarded = False
        self.stored = False


class FakeSource:
    """Hands out producers; `max_message_bytes` is what `refresh` finds."""

    def __init__(self, broker: FakeBroker, *, batch_bytes: int = MIB) -> None:
        self.broker = broker
        self.batch_bytes = batch_bytes
        self.events: Topic | None = Topic("events", 4, 4 * MIB)
        self.quarantine: Topic | None = Topic("quarantine", 3, 4 * MIB)
        self.producers: list[FakeProducer] = []
        self.alone: list[FakeProducer] = []
        self.why: list[str] = []
        self.available = asyncio.Event()
        self.available.set()
        self.problem: str | None = None
        self.refreshed: Callable[[], None] = lambda: None
        self.turns = Turns()
        self._current: FakeProducer | None = None

    @property
    def usable(self) -> FakeProducer | None:
        return self._current if self.available.is_set() else None

    async def current(self) -> FakeProducer:
        await self.available.wait()
        if self._current is None:
            self._current = FakeProducer(self.broker)
            self.producers.append(self._current)
        return self._current

    def silence(self) -> str:
        return "no answer"

    def discard(self, producer: FakeProducer, error: DeliveryError) -> None:
        if not producer.discarded:
            producer.discarded = True
            self.why.append(WHY[error.policy])
            self._current = None
            producer.gone.set_result(None)

    @asynccontextmanager
    async def isolated(self) -> AsyncIterator[FakeProducer]:
        producer = FakeProducer(self.broker)
        self.alone.append(producer)
        try:
            yield producer
        finally:
            producer.discarded = True

    def has_leader(self, partition: int) -> bool:
        return True

    def max_event_bytes(self) -> int:
        assert self.events is not None
        return self.events.max_message_bytes

    def max_quarantine_bytes(self) -> int:
        assert self.quarantine is not None
        return self.quarantine.max_message_bytes

    def turn(self, topic: str, partition: int) -> asyncio.Future[None] | None:
        return self.turns.next(1)

    def taken(self, producer: FakeProducer, topic: str, partition: int) -> AbstractContextManager[None]:
        return self.turns.taken(1, TopicPartition(topic, partition))

    def recount(self) -> None:
        self.turns.recount(lambda where: self.broker.leader)

    async def refresh(self) -> None:
        self.refreshed()


class FakePublisher:
    """Writes down what is published. `inside`: how many have entered and not left; `keyed`: where keys lead."""

    def __init__(self) -> None:
        self.submitted: list[tuple[Frame, DeliveryListener]] = []
        self.inside = 0
        self.keyed: dict[bytes, FakePublisher] = {}

    def enter(self) -> FakePublisher:
        self.inside += 1
        return self

    def of(self, ordering_key: bytes) -> FakePublisher:
        return self.keyed.get(ordering_key, self)

    def leave(self, pump: object) -> None:
        assert pump is self
        self.inside -= 1

    def publish(self, frame: Frame, listener: DeliveryListener) -> None:
        self.submitted.append((frame, listener))


def receiver_state(
    publisher: FakePublisher,
    limits: LimitSettings,
    scheduler: FairScheduler | None = None,
    budget: Budget | None = None,
    backend: Backend = NO_BACKEND,
) -> ReceiverState:
    """What the connections of a service share."""
    log = structlog.get_logger()
    return ReceiverState(
        publisher=publisher,  # type: ignore[arg-type]
        budget=budget or Budget(limits.process_budget, limits.connection_budget),
        scheduler=scheduler or FairScheduler(),
        limits=limits,
        metrics=ReceiverMetrics(),
        log=log,
        limited=RateLimited(log),
        backend=backend,
    )
