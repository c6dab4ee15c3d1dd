"""Logjam's devices, which publish to a consumer that may be away, and what must be true of its account of them."""

from __future__ import annotations

import asyncio
import functools
import random
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from headrace_common.record.contract import GAP_TYPE, REPUBLISHED, GapField
from headrace_logjam.devices import endpoints, positions, tail
from headrace_logjam.devices.consumer import ConsumerSession
from headrace_logjam.devices.positions import GROUP, DevicePosition, Places, decode
from headrace_logjam.devices.subscription import DeviceMessage
from headrace_logjam.devices.tail import read_tail
from headrace_logjam.wire import HEARTBEAT, Meta, encode_meta, joined

from tests.simulation.clients import Client
from tests.simulation.consuming import SimulatedAdmin
from tests.simulation.kafka import Stored
from tests.simulation.loop import EPOCH, replaced
from tests.simulation.scenario import ClientPlan, Scenario
from tests.simulation.zeromq import SubSocket

CONSUMER: Final = "us"
BEAT: Final = 5.0
AWAY: Final = (0.05, 3.0)
"""Seconds until a device that was killed is there again."""

RECONNECT: Final = (0.1, 1.0)
WRONG: Final = (-3_600_000, 3_600_000, 10 * 365 * 86_400_000)
"""How far a producer's clock may be off (ms)."""

LIFE: Final = re.compile(rb'"life":(\d+)')
META: Final = len(encode_meta(Meta(0, 0, 0, 0)))
TOGETHER_MS: Final = 1000
"""A record has the time of the first message that was read with it, at most so much before its own."""

Number = tuple[int, int]
"""A start of the device, and a number since then."""


def sections(scenario: Scenario) -> dict[str, Any]:
    """The settings of a consumer of all the scenario's devices."""
    devices = sum(plan.count for plan in scenario.clients if plan.kind == "device")
    chance = random.Random(f"logjam/{scenario.seed}")
    return {
        "logjam": {
            "consumer": CONSUMER,
            "endpoints": {f"d{number}": address(number) for number in range(devices)},
            "endpoint_messages": chance.choice((10_000, 10_000, 20)),
        }
    }


def address(number: int) -> str:
    """Where a device publishes."""
    return f"tcp://device:{number + 1}"


# Kafka


class PositionsAdmin(SimulatedAdmin):
    """The admin client that reads where a consumer stood."""

    async def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        await self._answers()
        return [{"partitions": [None] * self._broker.partitions}]

    async def list_consumer_group_offsets(self, group: str, partitions: list[Any]) -> dict[Any, Any]:
        await self._answers()
        return {where: self._broker.groups[group][where] for where in partitions}


@contextmanager
def in_place(world: Any) -> Iterator[None]:
    """What is replaced, and by what."""
    with replaced(
        (endpoints, "monitor", lambda context, made, *_: made.monitor),
        (endpoints, "read_tail", functools.partial(_looked, world, read_tail)),
        (ConsumerSession, "abandon", _abandoning(world, ConsumerSession.abandon)),
        (positions, "AIOKafkaAdminClient", lambda **_: PositionsAdmin(world.broker)),
        (positions, "make_consumer", world.consumer),
        (tail, "make_consumer", world.consumer),
        (tail, "describe", world.broker.describe),
    ):
        yield


def _abandoning(world: Any, abandon: Callable[[ConsumerSession, int], None]) -> Callable[[ConsumerSession, int], None]:
    """`ConsumerSession.abandon`, and of what: Kafka may have stored parts behind one that it refused."""

    def abandoned(session: ConsumerSession, ticket: int) -> None:
        frame = session._pending[ticket][0]
        world.accounts[session._endpoint.decode()].abandoned(frame.items[session._partly.get(ticket, 0) :])
        abandon(session, ticket)

    return abandoned


async def _looked(
    world: Any, look: Callable[..., Any], settings: Any, consumer: str, places: Places
) -> tail.TailNumbers:
    """`read_tail`, and whether it has seen all that it looks for."""
    found: tail.TailNumbers | None = None
    try:
        found = await look(settings, consumer, places)
        return found
    finally:
        times = [at.received for devices in places.values() for at in devices.values()]
        for name, devices in places.items():
            held = {} if found is None else found.held[name].behind()
            last = {device: behind.numbers[-1][1] - 1 for device, behind in held.items()}
            world.accounts[name].looked(devices, times, last, whole=found is not None and found.whole)


# Devices


@dataclass
class Link:
    """A consumer's connection to a device. What is on its way is lost with the connection, and else arrives in order."""

    connected: bool = False
    under_way: deque[list[bytes]] = field(default_factory=deque)


class Device(Client):
    """Publishes until its plan is done, and says its heartbeat until all that it said is stored, or called lost."""

    def __init__(self, world: Any, name: str, plan: ClientPlan, index: int) -> None:
        super().__init__(world, name, plan, index)
        self.number = 0 if plan.alike else 1 + len(world.devices) % 2
        self.endpoint = f"d{len(world.devices)}"
        self._address = address(len(world.devices))
        world.devices[self._address] = self
        self.account = world.accounts[self.endpoint]
        self.account.device = self
        self.said: dict[Number, tuple[bytes, bytes, bytes]] = {}
        self._links: dict[SubSocket, Link] = {}
        self._up = True
        self.life, self.sequence = 1, self.chance.choice((0, 0, 400))
        self._last_beat: Number = (0, 0)

    # Connections

    def subscribe(self, socket: SubSocket) -> None:
        self._links[socket] = Link()
        self._reconnect(socket, (0.0005, 0.01))

    def unsubscribe(self, socket: SubSocket) -> None:
        self._links.pop(socket, None)

    def _reconnect(self, socket: SubSocket, delay: tuple[float, float]) -> None:
        def come() -> None:
            link = self._links.get(socket)
            if link is None or link.connected:
                return
            if self._up:
                link.connected = True
                self.world.tell(f"{self.name} is connected")
            else:
                self._reconnect(socket, RECONNECT)

        self.world.loop.call_later(self.chance.uniform(*delay), come)

    def cut(self) -> None:
        """All connections end."""
        self.world.tell(f"{self.name}: its connections are cut")
        for socket, link in list(self._links.items()):
            if socket.life.dead:
                del self._links[socket]
            elif link.connected:
                link.connected = False
                link.under_way = deque()
                socket.monitor.ended += 1
                self._reconnect(socket, RECONNECT)

    async def restart(self) -> None:
        """It is killed, and counts from 1 again."""
        self._up = False
        self.cut()
        await asyncio.sleep(self.chance.uniform(*AWAY))
        self.life, self.sequence, self._up = self.life + 1, 0, True
        self.world.tell(f"{self.name} starts for the {self.life}th time")

    # Messages

    def publish(self) -> None:
        """A message, with the clock of its producer."""
        chance = self.chance
        text = f"\xfc{'x' * (chance.randint(0, self.plan.padding) if self.plan.padding else 0)}"
        body = orjson.dumps({"life": self.life, "n": 0 if self.plan.alike else self.sequence + 1, "text": text})
        if chance.random() < self.plan.faulty:
            body = body[:-1]
        created = int((EPOCH + self.world.loop.now) * 1000) + (chance.choice(WRONG) if chance.random() < 0.1 else 0)
        if self.plan.alike:  # as a device says that has no better clock
            created -= created % 1000
        self._say(chance.choice((b"a-b", b"c-d")), b"logs.a.b", body, created)

    def beat(self) -> None:
        created = int((EPOCH + self.world.loop.now) * 1000)
        self._say(b"heartbeat", self._address.encode(), b'{"life":%d}' % self.life, created)
        self._last_beat = self.life, self.sequence

    def _say(self, app_env: bytes, topic: bytes, body: bytes, created: int) -> None:
        self.sequence += 1
        self.said[self.life, self.sequence] = app_env, topic, body
        message = [app_env, topic, body, encode_meta(Meta(0, self.number, created, self.sequence))]
        for socket, link in self._links.items():
            if link.connected:
                link.under_way.append(message)
                self.world.loop.call_later(self.chance.uniform(0.0002, 0.003), self._arrives, socket, link.under_way)

    def _arrives(self, socket: SubSocket, under_way: deque[list[bytes]]) -> None:
        """The next message of a connection."""
        link = self._links.get(socket)
        there = link is not None and link.under_way is under_way and not socket.life.dead
        if there and not socket.arrives(under_way.popleft()):
            self.world.tell(f"{self.name} drops a message")

    async def run(self) -> None:
        plan, chance = self.plan, self.chance
        await asyncio.sleep(plan.start)
        beats = asyncio.create_task(self._beats())
        try:
            for _ in range(plan.frames):
                for _ in range(plan.events):
                    self.publish()
                if chance.random() < plan.cut:
                    self.cut()
                if chance.random() < plan.restarts:
                    await self.restart()
                await self.rest()
            while not self._is_heard():  # noqa: ASYNC110  (virtual time)
                await asyncio.sleep(BEAT / 2)
        finally:
            beats.cancel()
        self.done = True

    def _is_heard(self) -> bool:
        """When faults are over: its last heartbeat is stored."""
        return self._last_beat in self.account.stored and self.world.loop.now >= self.world.scenario.faults_end

    async def _beats(self) -> None:
        while True:
            if self._up:
                self.beat()
            await asyncio.sleep(BEAT)


# What is known of them


@dataclass(frozen=True)
class Marker:
    """Numbers that are called lost, and when the messages before and behind them came (ms). `before` None: they were found
    missing at a start.
    """

    start: int
    end: int
    after: int
    before: int | None


@dataclass(frozen=True)
class Start:
    """A start of the consumer after a kill: when (ms); the start of the device that its position is of, and the number; and the
    last number that it has found stored.
    """

    since: int
    known: int
    last: int
    found: int


class Account:
    """What the topics hold of one endpoint, and what may be called lost though it is there."""

    def __init__(self, world: Any, owners: dict[bytes, tuple[Account, Number]]) -> None:
        """`owners`: of ids, in all accounts."""
        self._world = world
        self._owners = owners
        self.device: Device | None = None
        self.stored: dict[Number, int] = {}  # with the time of each (ms)
        self._last: dict[bytes, tuple[int, Number]] = {}  # by app-env, with the producer
        self.markers: list[Marker] = []
        self.first: Number | None = None
        self._excused: set[Number] = set()
        self._answers: dict[Number, asyncio.Event] = {}
        self._ids: dict[Number, bytes] = {}
        self._gave_up = False
        """Kafka has refused something: its markers, which may join numbers of several starts, are not told from others."""
        self._forgotten: dict[int, int] = defaultdict(int)  # starts that a position had not come to, up to which number
        self._starts: list[Start] = []
        self._holes: dict[int, set[int]] = defaultdict(set)  # found when the device had not begun again, by its start
        self._dead_producers = 0
        self._is_known = True
        """Whether the last start knew a position of a device, and so did not join."""

    def looked(self, devices: Mapping[int, Any], times: list[int], last: Mapping[int, int], *, whole: bool) -> None:
        """A consumer that was killed has looked at the topics. `times`: of all positions that it knows; `last`: the last number
        of each device that it found; `whole`: it saw all.
        """
        self._dead_producers = self._world.broker.producers - 1
        self._is_known = bool(devices)
        if not devices and self._world.broker.commits_refused:
            self._joins()
        if not times:
            return
        since, until = max(min(times), max(times) - tail.WINDOW_MS), max(times) + tail.WINDOW_MS
        for device, at in devices.items():
            known = self._known(at)
            now_ms = int((EPOCH + self._world.loop.now) * 1000)
            there = max((number for life, number in self.stored if life == known and whole), default=0)
            self._starts.append(Start(now_ms, known, last.get(device, at.sequence), max(there, at.sequence)))
            for life, number in self.stored:
                if life > known:  # and it may have been taken for one of the start that the position is of
                    self._forgotten[life] = max(number, self._forgotten[life])
                    self._forgotten[known] = max(number, self._forgotten[known])
            self._excused |= {
                number
                for number, time in self.stored.items()
                if number[0] > known or not whole or not since <= time <= until
            }

    def _joins(self) -> None:
        """Kafka took no position before the kill: its successor has just joined, and does not know what was lost until then."""
        self.first = None
        for life, number in self.stored:
            self._forgotten[life] = max(number, self._forgotten[life])

    def abandoned(self, items: Sequence[Any]) -> None:
        """A frame of these items is given up."""
        self._gave_up = True
        for item in items:
            if isinstance(item, DeviceMessage) and item.meta is not None and (life := LIFE.search(item.frames[2])):
                self._excused.add((int(life[1]), item.meta.sequence))

    def _known(self, at: DevicePosition) -> int:
        """Which start of the device a position is of. Its number is stored, or a marker is in its place."""
        lives = [life for (life, number), time in self.stored.items() if number == at.sequence and time <= at.received]
        lives += [
            self._newest(each.after)
            for each in self.markers
            if each.start <= at.sequence < each.end and each.before is not None and each.before <= at.received
        ]
        begun = [life for (life, number), time in self.stored.items() if number > at.sequence and time >= at.received]
        return max(lives, default=min([self._newest(at.received), *begun]))

    def add(self, record: Stored) -> None:
        """A record is stored."""
        headers, value = record.headers, record.value
        assert value is not None
        if headers.get("ce_type") == GAP_TYPE.encode():
            about = orjson.loads(value)
            if self.device is None or (about[GapField.DEVICE], about[GapField.CONSUMER]) != (
                self.device.number,
                CONSUMER,
            ):
                self._world.oracle.fails(f"a marker of another device, or consumer: {about}")
            if GapField.AFTER in about:
                start, end, after = (about[key] for key in (GapField.FROM, GapField.TO, GapField.AFTER))
                self.markers.append(Marker(start, end, after, about.get(GapField.BEFORE)))
                known = self._starts[-1].known if self._starts else 0
                if GapField.BEFORE not in about and self.device is not None and known == self.device.life:
                    self._holes[known].update(range(start, end))
            return
        about = orjson.loads(headers.get("ce_attributes") or headers["attributes"])
        life = LIFE.search(value)
        assert life is not None, value
        number = int(life[1]), about["sequence"]
        self._is_as_it_was_said(record, number, about)
        name = headers.get("ce_id") or headers["id"]
        if self._ids.setdefault(number, name) != name:
            self._world.oracle.fails(f"{number} has two ids")
        if self._owners.setdefault(name, (self, number)) != (self, number):
            self._world.oracle.fails(f"{number} has the id of {self._owners[name][1]}, or of another device's message")
        self.stored.setdefault(number, record.timestamp)
        self._answers[number] = record.heard
        is_late = record.producer <= self._dead_producers
        if is_late:
            self._excused.add(number)  # its process was killed, and its successor has looked already
            if self._starts and number[0] > self._starts[-1].known:  # which knew nothing of that start
                self._forgotten[number[0]] = max(number[1], self._forgotten[number[0]])
        if self._is_known or not is_late:
            self.first = min(self.first or number, number)

    def _is_as_it_was_said(self, record: Stored, number: Number, about: dict[str, Any]) -> None:
        """Fails the run if a record is none of its device's messages, is there twice unmarked, or has lost its order."""
        said = (b"", b"", b"") if self.device is None else self.device.said.get(number, (b"", b"", b""))
        quarantined, fails = record.topic.endswith("quarantine"), self._world.oracle.fails
        whole = record.value == (joined([*said, record.value[-META:]]) if quarantined and record.value else said[2])
        beats = said[0] == HEARTBEAT and not quarantined
        subject = HEARTBEAT if beats else b"/".join(said[:2])
        whole &= subject == record.headers["ce_subject"]
        whole &= quarantined or beats == record.headers["ce_type"].endswith(HEARTBEAT)
        if not whole or self.device is None or about["device"] != self.device.number:
            fails(f"{number} is stored otherwise than it was said: {record.value!r:.200}")
        if about.get("consumer") != CONSUMER:
            fails(f"{number} is stored by {about.get('consumer')}")
        again = record.headers.get("ce_attributes", b"").endswith(REPUBLISHED)
        producer, last = self._last.get(said[0], (0, (0, 0)))
        if not quarantined and not again and record.producer >= producer:
            if number in self.stored and record.producer > self._dead_producers:
                fails(f"{number} is stored twice, and not marked")
            elif number < last:
                fails(f"{number} is stored behind {last}")
            self._last[said[0]] = record.producer, number

    def judge(self, ended: DevicePosition | None) -> list[str]:
        """What was promised and is not so. `ended`: where the consumer stood at its end; what is missing behind it may be
        reported when it is back.
        """
        marked: dict[int, set[int]] = defaultdict(set)
        passed: dict[int, set[int]] = defaultdict(set)  # of a start that ended in the gap
        anywhere: set[int] = set()
        for marker in self.markers:
            numbers = range(marker.start, marker.end)
            life = None if self._gave_up else self._life_of(marker)
            if life is None:
                anywhere.update(numbers)
            else:
                marked[life].update(numbers)
                for earlier in range(self._newest(marker.after), life):
                    passed[earlier].update(numbers)
        failures, before, (below, beyond) = [], 0, self._untold()
        known = 0 if ended is None else self._known(ended)
        for life in sorted({life for life, _ in self.stored}):
            there = {number for each, number in self.stored if each == life}
            lowest = 1 + max(below[life], self._forgotten[life])
            if self.first is not None and life == self.first[0]:
                lowest = max(lowest, self.first[1])
            elif min(there) > before:
                lowest = max(lowest, before + 1)
            highest = max(there) if life < known else ended.sequence if life == known and ended is not None else 0
            highest = min(highest, beyond.get(life, highest))
            silent = set(range(lowest, highest + 1)) - there - marked[life] - passed[life] - anywhere
            if silent:
                failures.append(f"numbers of start {life} are lost without a marker: {sorted(silent)[:9]}")
            called = marked[life] | (set() if self._gave_up else self._holes[life])
            false = {number for number in there & called if self._was_heard((life, number))}
            if false:
                failures.append(f"numbers of start {life} are stored and called lost: {sorted(false)[:9]}")
            before = max(there)
        return failures

    def _was_heard(self, number: Number) -> bool:
        """Whether its consumer knew that it is stored."""
        return self._answers[number].is_set() and number not in self._excused

    def _untold(self) -> tuple[dict[int, int], dict[int, int]]:
        """What a consumer that came back cannot know, by start of the device: up to which number, if its numbers do not show that
        it is another start; and from which number on, if it has ended meanwhile.
        """
        below: dict[int, int] = defaultdict(int)
        beyond: dict[int, int] = {}
        for start in self._starts:
            life, number = min((each for each, time in self.stored.items() if time >= start.since), default=(0, 0))
            if life != start.known:
                beyond[start.known] = min(start.found, beyond.get(start.known, start.found))
            if life > start.known and number > start.last:
                below[life] = max(below[life], start.last)
        return below, beyond

    def _newest(self, until: int) -> int:
        """The newest start of which something was stored that came until then."""
        return max((life for (life, _), time in self.stored.items() if time <= until), default=0)

    def _life_of(self, marker: Marker) -> int | None:
        """Of which start of the device it speaks: that of the message behind it. None: it was not stored, or
        several starts were heard in that moment.
        """
        if marker.before is None:
            return None
        behind = [
            (time, life)
            for (life, number), time in self.stored.items()
            if number == marker.end and 0 <= marker.before - time <= TOGETHER_MS
        ]
        newest = [life for time, life in behind if time == max(behind)[0]]
        return newest[0] if len(newest) == 1 else None


class Accounts(dict[str, Account]):
    """By endpoint."""

    def __init__(self, world: Any) -> None:
        super().__init__()
        self._world = world
        self._owners: dict[bytes, tuple[Account, Number]] = {}

    def __missing__(self, name: str) -> Account:
        made = self[name] = Account(self._world, self._owners)
        return made

    def add(self, record: Stored) -> None:
        """A record is stored."""
        self[record.headers["ce_source"].decode().rpartition("/")[2]].add(record)

    def judge(self) -> list[str]:
        """What was promised and is not so."""
        kept: dict[str, DevicePosition | None] = {}
        for each in self._world.broker.groups[f"{GROUP}{CONSUMER}"].values():
            for name, devices in decode(each.metadata).items():
                kept[name] = next(iter(devices.values()), kept.get(name))
        return [f"{name}: {failure}" for name, account in self.items() for failure in account.judge(kept.get(name))]
