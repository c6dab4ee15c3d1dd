"""Runs a scenario: the real `Service` of a protocol, between simulated clients and a simulated Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import random
import signal
import traceback
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from headrace_common.connection.receiver_state import Stoppable
from headrace_common.fairness.scheduler import Scheduler
from headrace_common.kafka import producer
from headrace_common.operations import sockets
from headrace_common.operations.errors import DeliveryPolicy
from headrace_common.operations.settings import KafkaSettings, ServiceSettings
from headrace_common.publishing import delivery
from headrace_common.service import service as services
from headrace_segment.replica import owner, reading
from headrace_segment.store import fold

from tests.constants import constants, parted
from tests.simulation import devices, libzmq, producers
from tests.simulation.answers import SegmentLog
from tests.simulation.clients import Client, Honest, Hostile, Teller
from tests.simulation.consuming import SimulatedAdmin, SimulatedConsumer
from tests.simulation.kafka import Broker, Weather
from tests.simulation.loop import Mortal, SimulatedLoop, StuckError, of_a_seed, replaced
from tests.simulation.network import End, Listening, Network
from tests.simulation.oracle import Oracle, source
from tests.simulation.protocols import PROTOCOLS, Spoken
from tests.simulation.scenario import ClientPlan, Fault, Scenario
from tests.simulation.segments import Reader, sections

RECOVERY = 660.0
"""Seconds after the last fault within which every honest client must have heard that all of its frames are stored."""

ENDING = 90.0
"""Seconds that a process may take to stop: LIMITS__DRAIN_TIME, its own parts, and Kafka's producers."""

RESTART = 0.3
LOWERED = 98_304
"""`max.message.bytes` of topics that had more: each event here is smaller."""
WATCH = 0.7
"""Seconds between two looks at the budgets and at what waits."""
LAST_EPOCH = 3
"""Epochs of a producer that appends to the log of segments: few, so that it hands over to another one."""
LONGEST_AIM = 5.0
"""Seconds after which a process that does nothing is killed all the same."""


KINDS: dict[str, type[Client]] = {
    "honest": Honest,
    "teller": Teller,
    "reader": Reader,
    "device": devices.Device,
    "producer": producers.Producer,
    "pusher": producers.Pusher,
    "logger": producers.Logger,
}
SECTIONS = {"segment": sections, "logjam": devices.sections, "producers": producers.sections}
"""Settings of a seed's own."""


@dataclass
class Result:
    """What came of a run."""

    failures: list[str]
    trace: list[str]
    seconds: float
    acknowledgements: int


@functools.lru_cache(256)
def settled(settings: type[ServiceSettings], sections: str) -> ServiceSettings:
    """The settings of these sections, in JSON. Reading them took a third of the time of a run without clients."""
    return settings(**json.loads(sections))


_numbers = itertools.count()


def numbered(thing: Any) -> int:
    """A hash that does not depend on where in memory it is."""
    return thing.__dict__.setdefault("_number", next(_numbers))


class Words:
    """A log that keeps nothing but what must never be said."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def bind(self, **_: Any) -> Words:
        return self

    def info(self, event: str, **values: Any) -> None:
        self._life.world.tell(f"the process says: {event} {values.get('problem', '')} {values.get('why', '')}")

    debug = warning = error = info

    def exception(self, event: str, **values: Any) -> None:
        if self._life.dead or self._life.world.loop.is_closed():
            return
        self._life.world.oracle.fails(f"a bug: {event} {values} {traceback.format_exc(limit=-3)}")


async def nothing() -> None:
    """In place of the start and the stop of `OpsServer`."""


class Life(Mortal):
    """One process, from its start to its end."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.ends: dict[End, None] = {}
        self.listening: list[Listening] = []
        self.ended = asyncio.Event()
        self.problem: str | None = None
        self.confirmed_before = 0  # when it was told to stop
        self.stopped: float | None = None  # when it was

    def start(self) -> None:
        protocol = self.world.spoken.protocol
        self.service: Any = services.Service(protocol.name, self.world.settings, protocol.build)
        setattr(self.service, "_log", Words(self))  # noqa: B010
        self.context.run(lambda: self.world.loop.create_task(self._run(), context=self.context.copy()))

    async def _run(self) -> None:
        try:
            self.problem = await self.service.run()
        except Exception as error:
            self.problem = repr(error)
        self.ended.set()

    def terminate(self) -> None:
        self.confirmed_before, self.stopped = self.confirmed, self.world.loop.now
        stop = self.signals.get(signal.SIGTERM)
        if stop is not None:
            self.context.copy().run(stop)
        else:  # it has not come so far: the signal ends it
            self.kill()
            self.ended.set()

    def kill(self) -> None:
        self.dead = True
        for each in self.listening:
            each.close()
        for end in self.ends:
            end.died()


class World:
    """One run."""

    def __init__(self, scenario: Scenario, *, traced: bool = False) -> None:
        self.scenario = scenario
        self.spoken: Spoken = PROTOCOLS[scenario.protocol]
        chance = random.Random(f"world/{scenario.protocol}/{scenario.seed}")
        self.loop = SimulatedLoop(random.Random(chance.getrandbits(64)), scenario.creep)  # type: ignore[abstract]
        self._chance = random.Random(chance.getrandbits(64))
        self.trace: list[str] = []
        self._traced = traced
        kafkas, most = random.Random(chance.getrandbits(64)), scenario.max_message_bytes
        self.broker = Broker(self.loop, kafkas, scenario.partitions, max_message_bytes=most)
        self.broker.tell = self.tell
        self.network = Network(self.loop, random.Random(chance.getrandbits(64)), lambda: len(self.broker.log))
        self.network.backlog = scenario.backlog
        self.oracle = Oracle(self)
        self.devices: dict[str, devices.Device] = {}
        numbers: dict[bytes, tuple[devices.Account, devices.Number]] = {}
        self.accounts = defaultdict[str, devices.Account](lambda: devices.Account(self, numbers))
        """By endpoint."""
        self.sound: list[tuple[ClientPlan, list[dict[str, Any]]]] = []
        """The events of frames that may be sent a second time, as others; and who sent them."""
        self.given_up: dict[str, set[DeliveryPolicy]] = {}
        """By address, why frames were given up."""
        if scenario.protocol == "logjam":
            self.broker.on_store = lambda record: self.accounts[source(record)].add(record)
        elif scenario.protocol == "segment":
            self.segments = SegmentLog(self)
            self.broker.on_store = self.segments.stored
        else:
            self.broker.on_store = self.oracle.stored
        self.usual = Weather(delay=scenario.delay)
        self.broker.weather = self.usual
        own = SECTIONS.get(scenario.protocol, lambda _: self.spoken.own)(scenario)
        kind: Any = self.spoken.protocol.settings
        rest, self._constants = parted(kind, own)
        sections = {"limits": scenario.limits, "kafka": scenario.kafka, "listen": {}, "ops": {"port": 0}, **rest}
        self.settings = settled(kind, json.dumps(sections))
        self.largest_piece = 1 << 16
        kinds = {plan.kind for plan in scenario.clients}
        self.all_expire = self.spoken.frames_expire and not kinds & {"pusher", "logger", "producer"}
        """No frame is kept until it is stored, as one of a producer is that hears no more answers."""
        self.replicas: list[Life] = []
        self.patience = min(RECOVERY, scenario.patience)

    def tell(self, line: str) -> None:
        if self._traced:
            self.trace.append(f"{self.loop.now:10.4f}  {line}")

    def run(self) -> Result:
        global _numbers
        _numbers = itertools.count()
        seeded, kept = of_a_seed(self.loop, self._chance), constants(self._constants)
        with seeded, kept, self._in_place(), libzmq.in_place(self), producers.in_place(self):
            try:
                self.loop.run(self._story())
            except StuckError as stuck:
                self.oracle.fails(f"stuck: {stuck}")
        for error in self.loop.errors:
            self.oracle.fails(f"an error that nobody handled: {error}")
        return Result(self.oracle.failures, self.trace, self.loop.now, self.oracle.acknowledgements)

    @contextlib.contextmanager
    def _in_place(self) -> Iterator[None]:
        """What is replaced, and by what: the seam."""
        with replaced(
            (services, "OpsServer", lambda *_: SimpleNamespace(port=0, start=nothing, stop=nothing)),
            (services, "configure", lambda *_: None),
            (services, "faulthandler", MagicMock()),  # its thread lives in real time
            (services, "STALL_LOOK", 5.0),  # it measures the real loop, and took a fifth of all turns here
            (services, "Scheduler", functools.partial(Scheduler, cpu=self.loop.time)),
            (delivery, "describe", self.broker.describe),
            (owner, "describe", self.broker.describe),
            (producer, "make_client", self.broker.make_client),
            (sockets, "bound_socket", self.network.bound),
            (Stoppable, "__hash__", numbered),  # a set of them has the same order each time
            (sockets, "address_of", lambda _: "simulated"),
            (asyncio.Event, "__hash__", numbered),
            (reading, "make_consumer", self.consumer),
            (owner, "CUT_LOOK", 1.0),
            (fold, "PART_BYTES", 1),
            (owner, "LAST_EPOCH", LAST_EPOCH),
            (fold, "LAST_EPOCH", LAST_EPOCH),
            (owner, "AIOKafkaAdminClient", lambda **_: SimulatedAdmin(self.broker)),
        ):
            yield

    def consumer(self, settings: KafkaSettings, **_: Any) -> SimulatedConsumer:
        """In place of `make_consumer`."""
        return SimulatedConsumer(self.broker, settings.request_timeout)

    # The story

    async def _story(self) -> None:
        self.replicas = [self._begin() for _ in range(self.scenario.replicas)]
        hostile = producers.Intruder if self.spoken.messages else Hostile
        self.clients = clients = [
            KINDS.get(plan.kind, hostile)(self, f"{plan.kind}{place}-{index}", plan, place + index)
            for place, plan in enumerate(self.scenario.clients)
            for index in range(plan.count)
        ]
        tasks = [asyncio.create_task(client.run()) for client in clients]
        faults = [asyncio.create_task(self._fault(fault)) for fault in self.scenario.faults]
        faults.append(asyncio.create_task(self._watch()))
        honest = [task for client, task in zip(clients, tasks, strict=True) if client.honest]
        if honest:
            await asyncio.wait(honest, timeout=self.scenario.faults_end + self.patience)
        for client, task in zip(clients, tasks, strict=True):
            self._look(client, task)
        for task in [*faults, *tasks]:
            task.cancel()
        await asyncio.wait(faults)
        self.loop.before_step = None
        self.broker.weather = self.usual
        await asyncio.gather(*(self._end(life) for life in self.replicas))
        if tasks:
            await asyncio.wait(tasks)
        if not self.oracle.failures:
            judges = [self.segments] if self.scenario.protocol == "segment" else self.accounts.values()
            for failure in [failure for each in judges for failure in each.judge()]:
                self.oracle.fails(failure)

    def _look(self, client: Client, task: asyncio.Task[None]) -> None:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            self.oracle.fails(f"{client.name} does not understand the receiver: {type(error).__name__}: {error}")
        elif client.honest and task.done():
            self.oracle.served(client)
        elif client.honest:
            self.oracle.fails(f"{client.name} has not been served {self.patience:g} s after the last fault")

    def _begin(self) -> Life:
        life = Life(self)
        self.tell("a process starts")
        life.start()
        return life

    async def _end(self, life: Life) -> None:
        if life.dead:
            return
        self.tell("SIGTERM")
        life.terminate()
        began = self.loop.now
        await self._ends(life)
        if not life.dead:
            self.oracle.ended(life, in_time=self.loop.now - began < self.settings.limits.drain_time)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH)
            for life in self.replicas:
                if not life.dead:
                    self.oracle.looks(life)

    # Faults

    async def _fault(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at)
        self.tell(f"fault: {fault}")
        if fault.kind == "kill":
            await self._kill(fault.where, fault.value)
        elif fault.kind == "term":
            await self._restart(fault.where)
        elif fault.kind == "partitions":
            self.broker.partitions += 1
        elif fault.kind == "lowered":
            self.broker.max_message_bytes = LOWERED
        else:
            name, value = ("delay", (0.001, fault.value)) if fault.kind == "slow" else (fault.kind, fault.value)
            if name == "missing":
                self.oracle.emptied()
            usual = getattr(self.usual, name)
            change: dict[str, Any] = {name: True if isinstance(usual, bool) else value}
            self.broker.weather = replace(self.broker.weather, **change)
            await asyncio.sleep(fault.lasts)
            self.broker.weather = replace(self.broker.weather, **{name: usual})
            self.tell(f"over: {fault.kind}")

    async def _kill(self, where: int, steps: int) -> None:
        """SIGKILL before the processes' step after `steps` more, wherever that is."""
        life, left = self.replicas[where], steps
        killed = asyncio.Event()

        def look(_: int) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                strike()

        def strike() -> None:
            self.loop.before_step = None
            killed.set()
            if life is self.replicas[where]:
                self.tell("SIGKILL")
                life.kill()

        self.loop.before_step = look
        try:
            await asyncio.wait_for(killed.wait(), LONGEST_AIM)
        except TimeoutError:
            strike()
        if life is self.replicas[where]:
            await asyncio.sleep(RESTART)
        if life is self.replicas[where]:
            self.replicas[where] = self._begin()

    async def _ends(self, life: Life) -> None:
        """Waits until a process has ended that was told so. Kills it if it takes too long."""
        try:
            await asyncio.wait_for(life.ended.wait(), ENDING)
        except TimeoutError:
            if not life.dead:
                self.oracle.fails(f"the process has not ended {ENDING:g} s after SIGTERM")
                life.kill()

    async def _restart(self, where: int) -> None:
        """SIGTERM, and a new process once the old one has ended; or SIGKILL, if it has not after a while."""
        life = self.replicas[where]
        self.tell("SIGTERM")
        life.terminate()
        await self._ends(life)
        if life is self.replicas[where]:
            self.replicas[where] = self._begin()
