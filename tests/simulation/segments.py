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

from tests.contract.topic import Stored as Read
from tests.segment import speaking, speaking_today
from tests.segment.client import Client as SegmentClient
from tests.segment.client import ClosedError, TodayClient
from tests.segment.naive import Naive
from tests.segment.replicas import ENDS, Balancer, History, judged
from tests.simulation.clients import Client
from tests.simulation.network import ClientEnd
from tests.simulation.scenario import ClientPlan

REPLY_TIME = 400.0
"""Seconds that a client waits for an answer: longer than any deadline of the service."""

LONGEST_PAUSE = 1.0
UNDER_WAY = 9
"""Events in blocks of up to three: so many that blocks go together (`AHEAD`)."""
PIECE = 3000
"""Bytes that a read asks for at most."""


class Duplex:
    """A simulated connection as `asyncio.StreamReader` and `StreamWriter`."""

    def __init__(self, end: ClientEnd) -> None:
        self.end = end
        self.transport = self
        self._arrived = bytearray()
        self._to_send: deque[bytes] = deque()
        self._sending: asyncio.Task[None] | None = None

    async def readexactly(self, size: int) -> bytes:
        while len(self._arrived) < size:
            data, _ = await self.end.read()
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


class Patient(SegmentClient):
    """It waits for as long as the service may take."""

    async def reply(self, seconds: float = REPLY_TIME) -> Any:
        try:
            return await super().reply(seconds)
        except TimeoutError:
            raise ClosedError from None


class SimulatedHistory(History):
    """A history on the simulated network and log. `over`: all that was to be written is."""

    def __init__(self, world: Any, events: int) -> None:
        super().__init__(world.scenario.seed, [], cast("Balancer", None), end=ENDS[events])
        self.alike = 3 if any(plan.alike for plan in world.scenario.clients) else 1
        self._world = world
        self.writing = 0
        self.today: dict[str, TodayWriter] = {}
        self.contents: list[tuple[str, bytes]] = []
        """What readers have read, segment by segment, to its end."""

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

    def floor(self, segment: str) -> int:
        """Bytes of a segment that writers know to be stored."""
        if segment in self.today:
            return self.today[segment].stored_bytes
        known: dict[bytes, int] = {}
        for life in self.lives:
            if life.segment == segment:
                known[life.writer] = max(known.get(life.writer, 0), life.acknowledged)
        return sum(known.values())

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
        for segment, content in self.contents:
            there = plain.segments.get(segment)
            if content != (b"" if there is None else there.content):
                found.append(f"a reader of {segment} has read other bytes than the log holds")
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
        stream = cast("Any", Duplex(await self.connect()))
        return Patient(stream, stream)


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

    @property
    def stored_bytes(self) -> int:
        return sum(8 + len(data) for data in self.data[: self.stored])

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
        stream = cast("Any", Duplex(await self.connect()))
        client = TodayClient(stream, stream)
        try:
            assert await client.ask(speaking_today.HELLO) == today.Hello(17, 5)
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
                if isinstance(answer, today.InvalidEventNumber):
                    return  # its session has ended, and with it the conversation: it sets up again
                assert isinstance(answer, today.DataAppended), answer
                self._hears(answer.level + 1)
        finally:
            stream.abort()

    def _hears(self, stored: int) -> None:
        if stored < self.stored:
            self.oracle.fails(f"{self.name} hears that {stored} events are stored, and heard {self.stored} before")
        self.stored = stored
        self.oracle.acknowledgements += 1


class Reader(Client):
    """Reads a segment from its beginning, and at its end what comes, until all is written."""

    async def run(self) -> None:
        history, number = self.world.history, self.number
        names = [*history.segments, *history.today]
        segment = names[number % len(names)]
        content = bytearray()
        await asyncio.sleep(self.plan.start)
        while not await self._reads(segment, content):  # noqa: ASYNC110  (a pause between two connections)
            await asyncio.sleep(self.chance.uniform(0, LONGEST_PAUSE))
        history.contents.append((segment, bytes(content)))
        self.done = True

    async def _reads(self, segment: str, content: bytearray) -> bool:
        """One connection. Returns whether all is read."""
        stream = None
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ClosedError):
            stream = cast("Any", Duplex(await self.connect()))
            new = self.number % 2
            client = TodayClient(stream, stream) if new else Patient(stream, stream)
            if isinstance(client, TodayClient):
                assert await client.ask(speaking_today.HELLO) == today.Hello(17, 5)
            ask = speaking_today.read if new else speaking.read
            while True:
                over, floor = self.world.history.over, self.world.history.floor(segment)
                client.say(ask(segment, len(content), PIECE))
                answer = await client.reply()
                if isinstance(answer, today.NoSuchSegment | original.NoSuchSegment):
                    if floor:
                        self.oracle.fails(f"{segment} is not there, and {floor} bytes of it are acknowledged")
                    if over:
                        return True
                    await asyncio.sleep(LONGEST_PAUSE)
                    continue
                assert isinstance(answer, today.SegmentRead | original.SegmentRead), answer
                assert answer.offset == len(content), answer
                content += answer.data
                at_tail = answer.at_tail if isinstance(answer, today.SegmentRead) else answer.flags & original.AT_TAIL
                if at_tail and len(content) < floor:
                    self.oracle.fails(
                        f"{self.name} is told that {segment} ends at {len(content)}, and {floor} bytes are acknowledged"
                    )
                if at_tail and over and not answer.data:
                    return True
        if stream is not None:
            stream.abort()
        return False
