"""The segment service in the simulation: writers of today's dialect and readers, between replicas that append to one log."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from typing import Any

from headrace_segment.store import records
from headrace_segment.wire import messages as today
from headrace_segment.wire import original

from tests.contract.topic import Stored as Read
from tests.segment import speaking, speaking_today
from tests.segment.client import ClosedError
from tests.segment.naive import Naive
from tests.simulation.answers import SegmentLog, Talk
from tests.simulation.clients import Client
from tests.simulation.lives import ENDS, Life, judged
from tests.simulation.scenario import ClientPlan, Scenario
from tests.simulation.talking import LONGEST_PAUSE, Patient, Today

UNDER_WAY = 9
"""Events in blocks of up to three that wait for their acknowledgements."""
PIECE = 3000
"""Bytes that a read asks for at most."""


def sections(scenario: Scenario) -> dict[str, Any]:
    """The settings of a seed: in some, what is read is not in memory any more."""
    chance = random.Random(f"segment/{scenario.seed}")
    kept = {
        "tail_wait": 2.0,
        "checkpoint_records": chance.choice((10, 40)),
        "cache_bytes": chance.choice((1 << 20, 3000)),
    }
    return {"segment": kept}


class SegmentHistory:
    """What is written in a run. `over`: all that was to be written is."""

    def __init__(self, world: Any, events: int) -> None:
        self._world = world
        self.segments = [f"lives-{number}" for number in range(2)]
        self.end = ENDS[events]
        """The level of each `Writer`, in the end."""
        self.alike = 3 if any(plan.alike for plan in world.scenario.clients) else 1
        self.lives: list[Life] = []
        self.writing = 0
        self.today: dict[str, TodayWriter] = {}
        self.kept = (
            [f"kept-{number}" for number in range(2)]
            if any(plan.kind == "keeper" for plan in world.scenario.clients)
            else []
        )
        self.log = SegmentLog(world)

    @property
    def over(self) -> bool:
        return not self.writing

    def judge(self) -> list[str]:
        """What was promised and is not so, by what the topics hold and readers have read."""
        topics: dict[str, list[Read]] = {"headrace.segments": [], "headrace.events": [], "headrace.quarantine": []}
        for where, log in sorted(self._world.broker.logs.items()):
            topics.get(where.topic, []).extend(
                Read(each.partition, each.offset, each.timestamp, each.key, list(each.headers.items()), each.value)
                for each in log
            )
        found = judged(self.lives, self.end, *topics.values())
        plain = Naive()
        for each in topics["headrace.segments"]:
            plain.apply((each.key or b"").decode(), records.decode(each.value)[0])
        for segment, writer in self.today.items():
            if plain.segments[segment].content != speaking.events(*writer.data):
                found.append(f"{segment} does not hold what its only writer wrote, once and in order")
            kept = {each["ce_id"]: each.value for each in topics["headrace.events"] if each["ce_subject"] == segment}
            if (events := Counter(kept.values())) != Counter(writer.data):
                found.append(f"{segment}: of {len(writer.data)} events the topic has {events.total()}, by their ids")
        found += self.log.judge()
        return found


class TodayWriter(Client):
    """The only writer of its segment, in today's dialect: it sends again what is not acknowledged."""

    def __init__(self, world: Any, name: str, plan: ClientPlan, index: int) -> None:
        super().__init__(world, name, plan, index)
        self.segment = f"today-{name}"
        self.data = [f"{name}/{n}/".encode() + self.chance.randbytes(n % 40) for n in range(plan.frames)]
        if plan.alike:
            self.data = [self.data[n - n % 3] for n in range(plan.frames)]
        self.stored = 0
        world.history.today[self.segment] = self

    def says(self, segment: str, writer: str, level: int, value: bytes) -> bool:
        """Whether it has sent this event."""
        return segment == self.segment and self.data[level : level + 1] == [value]

    def _wrote(self, _: int, writer: bytes, before: int, after: int) -> bytes:
        return speaking.events(*self.data[max(before + 1, 0) : after + 1])

    async def run(self) -> None:
        history, writer = self.world.history, self.chance.randbytes(16)
        history.writing += 1
        await asyncio.sleep(self.plan.start)
        while self.stored < len(self.data):
            with contextlib.suppress(OSError, ClosedError):  # a time limit is an OSError, too
                await self._connection(writer)
            await asyncio.sleep(self.chance.uniform(0, LONGEST_PAUSE))
        history.writing -= 1
        self.done = True

    async def _connection(self, writer: bytes) -> None:
        client = Today(await self.connect(), Talk(self.world, self.name, self._wrote))
        try:
            await client.greet()
            answer = await client.ask(speaking_today.create(self.segment))
            assert isinstance(answer, today.SegmentCreated | today.SegmentAlreadyExists), answer
            level = await client.setup(self.segment, writer)
            self._hears(0 if level == records.Numbering.EVENTS.first else level + 1)
            sent = self.stored
            while self.stored < len(self.data):
                while sent < len(self.data) and sent - self.stored < UNDER_WAY:
                    count = min(self.chance.randint(1, 3), len(self.data) - sent)
                    block = self.data[sent : sent + count]
                    sent += count
                    client.say(speaking_today.append(sent - 1, *block, writer=writer))
                answer = await client.reply()
                assert isinstance(answer, today.DataAppended), answer
                self._hears(answer.level + 1)
        finally:
            client.cut()

    def _hears(self, stored: int) -> None:
        if stored < self.stored:
            self.oracle.fails(f"{self.name} hears that {stored} events are stored, and heard {self.stored} before")
        self.stored = stored


class Reader(Client):
    """Reads a segment from its beginning, and at its end what comes, until all is written."""

    async def run(self) -> None:
        history, number = self.world.history, self.number
        names = [*history.kept, *history.segments, *history.today]
        self._offset = 0
        await asyncio.sleep(self.plan.start)
        while not await self._reads(names[number % len(names)]):  # noqa: ASYNC110  (a pause between two connections)
            await asyncio.sleep(self.chance.uniform(0, LONGEST_PAUSE))
        self.done = True

    async def _reads(self, segment: str) -> bool:
        """One connection. Returns whether all is read."""
        client: Today | Patient | None = None
        with contextlib.suppress(OSError, ClosedError):
            end, talk = await self.connect(), Talk(self.world, self.name)
            client = Today(end, talk) if self.number % 2 else Patient(end, talk)
            if isinstance(client, Today):
                await client.greet()
            ask = speaking_today.read if isinstance(client, Today) else speaking.read
            while True:
                over = self.world.history.over
                answer = await client.ask(ask(segment, self._offset, PIECE))
                if isinstance(answer, today.SegmentRead | original.SegmentRead) and answer.data:
                    self._offset += len(answer.data)
                    continue
                if over:
                    return True
                await asyncio.sleep(self.chance.uniform(0, LONGEST_PAUSE / 5))
        if client is not None:
            client.cut()
        return False
