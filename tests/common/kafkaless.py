"""Stand-ins for what stands on both sides of a pump: frames and their receipts, producers and their answers."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import structlog
from aiokafka import errors
from headrace_common.connection.receiver_state import ReceiverState
from headrace_common.fairness.budget import Budget
from headrace_common.fairness.scheduler import Scheduler
from headrace_common.kafka import producer
from headrace_common.operations.errors import DeliveryError
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import MIB, KafkaSettings, LimitSettings
from headrace_common.operations.tasks import Tasks
from headrace_common.publishing import delivery
from headrace_common.publishing.delivery import Delivery
from headrace_common.publishing.in_flight import DeliveryListener, Growth
from headrace_common.publishing.publisher import Publisher
from headrace_common.record.contract import Reason
from headrace_common.record.event import Envelope, Event, Part, Reject
from headrace_common.session.interface import NO_BACKEND, Backend, Frame, Run, Ticket
from structlog.testing import CapturingLogger

from tests.common.slowly import slow_loop
from tests.simulation.kafka import Broker, Request, SimulatedClient, Weather
from tests.simulation.loop import Mortal, replaced

NOW_MS = 1_700_000_000_000
ENVELOPE = Envelope("forward", "/forward/test", "t")


def event(number: int, size: int = 10, *, attributes: bytes | None = None) -> Event:
    """An event whose id and value tell its number."""
    name = b"d.%032x" % number
    return ENVELOPE.event(name, b"2023-11-14T22:13:20Z", b'"%0*d"' % (size, number), attributes)


def reject(number: int, raw: bytes = b"raw") -> Reject:
    return ENVELOPE.reject(Reason.BAD_RECORD, "bad", raw, b"d.%032x" % number)


Made = Part | int | tuple[float, Part | int]
"""A part of a frame. A number is a pause; of a pair, the first are the seconds that making it takes."""


@dataclass(eq=False)
class FakeFrame(Frame):
    """A frame of given parts."""

    given: Sequence[Made | Exception]
    ticket: Ticket = 0
    size: int = 100
    acknowledged: bool = True
    received_ms: int = NOW_MS
    small: bool = False
    at_once: bool = False
    """All parts are one run, if there is nothing else."""

    def runs(self) -> Iterator[Run]:
        if self.at_once and all(isinstance(part, bytes | Reject) for part in self.given):
            yield [*self.given]  # type: ignore[list-item]
            return
        for part in self.given:
            if isinstance(part, Exception):
                raise part
            if isinstance(part, tuple):
                slow_loop().work(part[0])
                part = part[1]
            yield part

    def spoiled(self, detail: str) -> Reject:
        return ENVELOPE.reject(Reason.INTERNAL, detail, b"all of it", b"u.%032x" % self.ticket)


class Heard(DeliveryListener):
    """Notes the tickets of frames that are stored whole and that are abandoned, and takes time for it."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.whole: list[Ticket] = []
        self.lost: list[Ticket] = []

    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        if self.seconds:
            slow_loop().work(self.seconds)
        self.whole += [ticket] * whole

    def abandoned(self, ticket: Ticket, error: DeliveryError) -> None:
        if self.seconds:
            slow_loop().work(self.seconds)
        self.lost.append(ticket)

    def count(self) -> int:
        return len(self.whole) + len(self.lost)


LOST: Final = "lost"
"""In place of an answer: none comes."""

ANSWERS: Final[dict[str, tuple[bool, str]]] = {
    **{kind.__name__: (False, kind.__name__) for kind in errors.kafka_errors.values() if kind.errno},
    "stored": (True, ""),
    "late answer": (True, ""),
    "timed out": (True, "RequestTimedOutError"),
    "stored, not replicated": (True, "NotEnoughReplicasAfterAppendError"),
    "stored, and unknown": (True, "UnknownError"),
    "lost request": (False, LOST),
    "lost answer": (True, LOST),
}
"""What may be said of a batch: whether it is stored, and the error. An answer that is late comes once Kafka is `open`."""

ERRORS: Final = {kind.__name__: kind for kind in errors.kafka_errors.values()}


class Kafka(Broker):
    """The simulation's, which says of the next batches of a topic what it is told."""

    def __init__(self) -> None:
        loop: Any = asyncio.get_running_loop()
        super().__init__(loop, random.Random(0), 4, max_message_bytes=4 * MIB)
        self.weather = Weather(delay=(0, 0), unheard=1.0)  # so that it fences nobody by chance
        self.timeout = 1.0
        """Seconds after which a request counts as lost."""
        self.says: defaultdict[str, deque[str]] = defaultdict(deque)
        self.sent: list[Request] = []
        self.requests = 0
        self.open = asyncio.Event()
        """It answers."""
        self.open.set()

    def produce(self, batches: Sequence[Request], reply: Callable[[list[Exception | None]], None]) -> None:
        self.requests += 1
        found = [self.said(batch) for batch in batches]
        if LOST not in found:
            answers = [ERRORS[each]() if isinstance(each, str) else each for each in found]
            answering = asyncio.ensure_future(self.open.wait())
            answering.add_done_callback(lambda _: reply(answers))

    def said(self, batch: Request) -> Exception | str | None:
        """Returns the answer for a batch, which is stored or not."""
        self.sent.append(batch)
        says = self.says[batch.where.topic]
        is_stored, error = ANSWERS[name := says.popleft() if says else "stored"]
        if name == "late answer":
            self.open.clear()
        refused = self._judge(batch) if is_stored else None
        if is_stored and refused is None:
            refused = self._sequenced(batch)
        return refused or error or None

    def make_client(self, settings: KafkaSettings) -> SimulatedClient:
        return Mortal().context.run(SimulatedClient, self, self.timeout)


class Stage:
    """A publisher that runs over this Kafka, in slow time. Enter it before it is used."""

    def __init__(self, kafka: Kafka, deadline: float = 30.0, growth: Growth | None = None) -> None:
        self.kafka, self.loop, self.metrics = kafka, slow_loop(), ReceiverMetrics()
        self.growth, self.scheduler = growth or Growth(10 * MIB, 6 * MIB), Scheduler(cpu=self.loop.time)
        self.ends: list[str | None] = []
        self.log = CapturingLogger()
        self.tasks = Tasks(lambda: self.ends.append(self.tasks.problem))
        settings = KafkaSettings(events_topic="events", quarantine_topic="quarantine", ack_deadline=deadline)
        log: Any = self.log
        self.publisher = Publisher(settings, self.scheduler, self.growth, self.metrics, log, self.tasks)
        self.pumps = self.publisher._pumps

    async def __aenter__(self) -> Self:
        with replaced((delivery, "describe", self.kafka.describe), (producer, "make_client", self.kafka.make_client)):
            await self.publisher.start()
        self.publisher._delivery.refresh = self._refresh  # type: ignore[method-assign]
        self.log.calls.clear()
        return self

    async def _refresh(self) -> None:
        with replaced((delivery, "describe", self.kafka.describe)):
            await Delivery.refresh(self.publisher._delivery)

    async def __aexit__(self, *_: object) -> None:
        await self.tasks.stop()

    async def idle(self) -> None:
        async with asyncio.timeout(200):
            await self.publisher.flush()


class FakePublisher:
    """Writes down what is published."""

    def __init__(self) -> None:
        self.submitted: list[tuple[Frame, DeliveryListener]] = []

    def choose(self) -> FakePublisher:
        return self

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
