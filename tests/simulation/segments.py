"""The segment service in the simulation: writers of both dialects and readers, between replicas that append to one log.

Histories, clients and the rules that judge them are those of `tests/segment`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter, deque
from typing import Any, cast

from headrace_segment.store import records
from headrace_segment.wire import messages as today
from headrace_segment.wire import original
from headrace_segment.wire.codes import HEADER, Kind

from tests.contract.topic import Stored as Read
from tests.segment import speaking, speaking_today
from tests.segment.client import Client as SegmentClient
from tests.segment.client import ClosedError, Connection, TodayClient
from tests.segment.naive import Naive
from tests.segment.replicas import ENDS, Balancer, History, judged
from tests.simulation.answers import SegmentLog, Talk
from tests.simulation.clients import Client
from tests.simulation.network import ClientEnd
from tests.simulation.scenario import ClientPlan, Scenario

REPLY_TIME = 400.0
"""Seconds that a client waits for an answer: longer than any deadline of the service."""

LONGEST_PAUSE = 1.0
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
    return {"segment": {**kept, "may_destroy": ["0.0.0.0/0", "::/0"]}}


class Duplex:
    """A simulated connection as `asyncio.StreamReader` and `StreamWriter`."""

    def __init__(self, end: ClientEnd) -> None:
        self.end = end
        self.transport = self
        self._arrived = bytearray()
        self._to_send: deque[bytes] = deque()
        self._sending: asyncio.Task[None] | None = None
        self.version = 0
        """The length of all logs when the last of what was read had left."""

    async def readexactly(self, size: int) -> bytes:
        while len(self._arrived) < size:
            data, self.version = await self.end.read()
            if not data:
                raise asyncio.IncompleteReadError(bytes(self._arrived), size)
            self._arrived += data
        found = bytes(self._arrived[:size])
        del self._arrived[:size]
        return found

    def write(self, data: bytes) -> None:
        self._to_send.append(data)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        with contextlib.suppress(OSError):  # who reads learns of it
            while self._to_send:
                await self.end.send(self._to_send.popleft())

    async def drain(self) -> None:
        if self._sending is not None:
            await asyncio.wait([self._sending])

    def close(self) -> None:
        self.end.close()

    def abort(self) -> None:
        self.end.abort()

    async def wait_closed(self) -> None:
        pass


class Judged(Connection):
    """It waits for as long as the service may take, and holds each answer against the log."""

    def __init__(self, end: ClientEnd, talk: Talk) -> None:
        stream = cast("Any", Duplex(end))
        super().__init__(stream, stream)
        self._talk = talk

    def say(self, data: bytes) -> None:
        kind, size = HEADER.unpack_from(data)
        if kind == Kind.BEGIN_APPEND_BLOCK and self.messages is today.MESSAGES:
            at = HEADER.size + size  # its end has the number
            self._asks(data[at:])
        elif kind not in (Kind.HELLO, Kind.KEEP_ALIVE):
            self._asks(data)
        super().say(data)

    def _asks(self, data: bytes) -> None:
        kind, size = HEADER.unpack_from(data)
        self._talk.asks(self.messages.decode(kind, data[HEADER.size : HEADER.size + size]))

    async def reply(self, seconds: float = REPLY_TIME) -> Any:
        try:
            answer = await super().reply(seconds)
        except TimeoutError:
            raise ClosedError from None
        if not isinstance(answer, today.Hello | today.KeepAlive | original.KeepAlive):
            self._talk.hears(answer, cast("Any", self._reader).version)
        return answer


class Patient(Judged, SegmentClient):
    """In the original dialect."""


class Today(Judged, TodayClient):
    """In today's dialect."""

    async def greet(self) -> None:
        assert await self.ask(speaking_today.HELLO) == today.Hello(17, 5)


class SimulatedHistory(History):
    """A history on the simulated network and log. `over`: all that was to be written is."""

    def __init__(self, world: Any, events: int) -> None:
        super().__init__(world.scenario.seed, [], cast("Balancer", None), end=ENDS[events])
        self.alike = 3 if any(plan.alike for plan in world.scenario.clients) else 1
        self._world = world
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

    def _pause(self, chance: random.Random) -> float:
        return chance.uniform(0, LONGEST_PAUSE)

    def _give_up(self, chance: random.Random, client: SegmentClient) -> None:
        """The client goes; what it has said arrives now, later, or never."""
        self.cuts += 1
        if chance.random() < 0.5:
            return
        client.held = True  # type: ignore[attr-defined]
        stream = cast("Any", client._writer)
        stream.end.slow_down(chance.choice((0.001, 0.05, 1.0)))
        self._world.loop.call_later(chance.uniform(0.1, 5.0), stream.close)

    def judge(self) -> list[str]:
        """What was promised and is not so, by what the topics hold and readers have read."""
        topics: dict[str, list[Read]] = {"headrace.segments": [], "headrace.events": [], "headrace.quarantine": []}
        for where, log in sorted(self._world.broker.logs.items()):
            topics.get(where.topic, []).extend(
                Read(each.partition, each.offset, each.timestamp, each.key, list(each.headers.items()), each.value)
                for each in log
            )
        found, _ = judged(self, *topics.values())
        plain = Naive()
        for each in topics["headrace.segments"]:
            plain.apply((each.key or b"").decode(), records.decode(each.value))
        for segment, writer in self.today.items():
            if plain.segments[segment].content != speaking.events(*writer.data):
                found.append(f"{segment} does not hold what its only writer wrote, once and in order")
            kept = {each["ce_id"]: each.value for each in topics["headrace.events"] if each["ce_subject"] == segment}
            if (events := Counter(kept.values())) != Counter(writer.data):
                found.append(f"{segment}: of {len(writer.data)} events the topic has {events.total()}, by their ids")
        found += self.log.judge()
        return found


class Writer(Client):
    """Writes a segment in the original dialect, life after life (`Life`)."""

    async def run(self) -> None:
        history = self.world.history
        history.writing += 1
        await asyncio.sleep(self.plan.start)
        await history.write(self.chance, self.number, self.opens)
        history.writing -= 1
        self.done = True

    async def opens(self) -> SegmentClient:
        lives = tuple(self.world.history.lives)

        def wrote(_: int, writer: bytes, before: int, after: int) -> bytes:
            life = [each for each in lives if each.writer == writer][-1]
            return life.between(before, after) if {before, after} <= {*ENDS} else b""

        return Patient(await self.connect(), Talk(self.world, self.name, wrote))

    def says(self, segment: str, writer: str, level: int, value: bytes) -> bool:
        """Whether it has sent this event."""
        lives = [each for each in self.world.history.lives if (each.segment, each.writer.hex()) == (segment, writer)]
        return level in ENDS and any(each.event(ENDS.index(level) - 1)[8:] == value for each in lives)


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
                if isinstance(answer, today.SegmentIsTruncated | original.SegmentIsTruncated):
                    self._offset = answer.start
                    continue
                if isinstance(answer, today.SegmentRead | original.SegmentRead) and answer.data:
                    self._offset += len(answer.data)
                    continue
                if over:
                    return True
                await asyncio.sleep(self.chance.uniform(0, LONGEST_PAUSE / 5))
        if client is not None:
            client.cut()
        return False
