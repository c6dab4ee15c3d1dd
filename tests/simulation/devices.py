"""Logjam's devices, which publish to a consumer that may be away, and what must be true of its account of them."""

from __future__ import annotations

import asyncio
import random
import re
from collections import deque
from itertools import pairwise
from typing import Any, Final

import orjson
from headrace_common.record.contract import REPUBLISHED
from headrace_logjam.wire import HEARTBEAT, Meta, decode_meta, encode_meta, joined

from tests.logjam.losses import Row, losses
from tests.simulation.clients import Client
from tests.simulation.kafka import Stored
from tests.simulation.libzmq import SubSocket
from tests.simulation.loop import EPOCH
from tests.simulation.scenario import ClientPlan, Scenario

CONSUMER: Final = "us"
BEAT: Final = 5.0
AWAY: Final = (0.05, 3.0)
"""Seconds until a device that was killed is there again."""

RECONNECT: Final = (0.1, 1.0)
WRONG: Final = (-3_600_000, 3_600_000, 10 * 365 * 86_400_000)
"""How far a producer's clock may be off (ms)."""

LIFE: Final = re.compile(rb'"life":(\d+)')
META: Final = len(encode_meta(Meta(0, 0, 0, 0)))
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


class Device(Client):
    """Publishes until its plan is done, and says its heartbeat until all that it said is stored, or called lost."""

    def __init__(self, world: Any, name: str, plan: ClientPlan, index: int) -> None:
        super().__init__(world, name, plan, index)
        self.number = 0 if plan.alike else 1 + len(world.devices) % 2
        self.endpoint = f"d{len(world.devices)}"
        self.address = address(len(world.devices))
        world.devices[self.address] = self
        self.account = world.accounts[self.endpoint]
        self.account.device = self
        self.said: dict[Number, tuple[bytes, bytes, bytes]] = {}
        self._links: dict[SubSocket, deque[list[bytes]] | None] = {}
        """What is on its way, which is lost with the connection, and else arrives in order; None: not connected."""
        self._up = True
        self.life, self.sequence = 1, self.chance.choice((0, 0, 400))
        self._last_beat: Number = (0, 0)

    # Connections

    def subscribe(self, socket: SubSocket) -> None:
        self.account.sockets.append(socket)
        self._links[socket] = None
        self._reconnect(socket, (0.0005, 0.01))

    def unsubscribe(self, socket: SubSocket) -> None:
        self._links.pop(socket, None)

    def _reconnect(self, socket: SubSocket, delay: tuple[float, float]) -> None:
        def come() -> None:
            if self._up and self._links.get(socket, ()) is None:
                self._links[socket] = deque()
                self.world.tell(f"{self.name} is connected")
            elif not self._up and socket in self._links:
                self._reconnect(socket, RECONNECT)

        self.world.loop.call_later(self.chance.uniform(*delay), come)

    def cut(self) -> None:
        """All connections end."""
        self.world.tell(f"{self.name}: its connections are cut")
        for socket, link in list(self._links.items()):
            if socket.life.dead:
                del self._links[socket]
            elif link is not None:
                self._links[socket] = None
                socket.ends.append([])
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
        self._say(b"heartbeat", self.address.encode(), b'{"life":%d}' % self.life, created)
        self._last_beat = self.life, self.sequence

    def _say(self, app_env: bytes, topic: bytes, body: bytes, created: int) -> None:
        self.sequence += 1
        self.said[self.life, self.sequence] = app_env, topic, body
        message = [app_env, topic, body, encode_meta(Meta(0, self.number, created, self.sequence))]
        for socket, link in self._links.items():
            if link is not None:
                link.append(message)
                self.world.loop.call_later(self.chance.uniform(0.0002, 0.003), self._arrives, socket, link)

    def _arrives(self, socket: SubSocket, under_way: deque[list[bytes]]) -> None:
        """The next message of a connection."""
        there = self._links.get(socket) is under_way and not socket.life.dead
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


class Account:
    """What the topics hold of one endpoint, and what the query says of it."""

    def __init__(self, world: Any, owners: dict[bytes, tuple[Account, Number]]) -> None:
        """`owners`: of ids, in all accounts."""
        self._world = world
        self._owners = owners
        self.device: Device | None = None
        self.stored: dict[Number, int] = {}  # with the producer of each
        self._rows: dict[bytes, Row] = {}  # by id
        self._last: dict[bytes, tuple[int, Number]] = {}  # by app-env, with the producer
        self._ids: dict[Number, bytes] = {}
        self.sockets: list[SubSocket] = []

    def add(self, record: Stored) -> None:
        """A record is stored."""
        headers, value = record.headers, record.value
        assert value is not None
        text = headers.get("ce_attributes") or headers["attributes"]
        about = orjson.loads(text)
        life = LIFE.search(value)
        assert life is not None, value
        number = int(life[1]), about["sequence"]
        self._is_as_it_was_said(record, number, about)
        name = headers.get("ce_id") or headers["id"]
        if self._ids.setdefault(number, name) != name:
            self._world.oracle.fails(f"{number} has two ids")
        if self._owners.setdefault(name, (self, number)) != (self, number):
            self._world.oracle.fails(f"{number} has the id of {self._owners[name][1]}, or of another device's message")
        self.stored.setdefault(number, record.producer)
        self._rows.setdefault(name, (name.decode(), text.decode(), record.timestamp))

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
            if self.stored.get(number) == record.producer:
                fails(f"{number} is stored twice, and not marked")
            elif number < last:
                fails(f"{number} is stored behind {last}")
            self._last[said[0]] = record.producer, number

    def judge(self) -> list[str]:
        """What the query says otherwise than it is."""
        found = sorted(number for _, start, end in losses([*self._rows.values()]) for number in range(start, end))
        lives = sorted({life for life, _ in self.stored})
        there = [{number for each, number in self.stored if each == life} for life in lives]
        shown = all(min(later) <= max(earlier) for earlier, later in pairwise(there))
        lost: list[int] = []
        for at, numbers in enumerate(there):
            lost += set(range(1 if at else min(numbers), max(numbers))) - numbers
        assert self.device is not None
        # One before may have been stopped while Kafka stored nothing, and what is killed stores nothing.
        last = self.sockets[-1].life
        read = [message for socket in self.sockets if socket.life is last and not last.dead for message in socket.taken]
        if self.device.address not in self._world.given_up and (
            gone := [number for number in map(number_of, read) if number not in self.stored]
        ):
            return [f"{len(gone)} messages were read, and not stored: {sorted(gone)[:9]}"]
        if found == sorted(lost) or not shown:  # a start that its numbers do not show
            return []
        return [f"{len(found)} numbers are said to be lost, {len(lost)} were: {sorted(lost)[:9]}"]


def number_of(message: list[bytes]) -> Number:
    """Of which start of its device a message is, and its number."""
    life = LIFE.search(message[2])
    assert life is not None
    return int(life[1]), decode_meta(message[3]).sequence
