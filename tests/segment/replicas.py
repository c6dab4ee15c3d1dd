"""Random histories of two replicas as processes behind one address, and what must be true at their end by the topics alone.

A writer's n-th event has a size of its own, so whoever writes it again, with whatever bytes, brings the same levels. A life of a
writer has bytes of its own above the first level that it hears, and they never change; a new life has others. A connection may be
held: its client is gone, and what it has sent arrives later, when the writer has another session.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import struct
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from headrace_common.operations.settings import KafkaSettings
from headrace_segment.store import records
from headrace_segment.wire.original import AppendSetup, DataAppended

from tests.contract.receiver import Receiver
from tests.contract.topic import Stored, events, quarantined, since
from tests.segment.client import Client, ClosedError, restart
from tests.segment.naive import Naive
from tests.segment.speaking import block, setup

EVENT_BYTES = 1024
HEADER = struct.Struct(">ii")
EVENTS = 400
"""Of each writer, in the end."""


def size_of(number: int) -> int:
    """The bytes of a writer's event, its header included: some are too large for the events topic."""
    return 8 + (EVENT_BYTES + 8 if number % 23 == 11 else 24)


ENDS = [0]
for _number in range(EVENTS):
    ENDS.append(ENDS[-1] + size_of(_number))


class Balancer:
    """One address for all replicas: each connection goes to one of them."""

    def __init__(self, replicas: list[Receiver], chance: random.Random) -> None:
        self._replicas = replicas
        self._chance = chance
        self._server: asyncio.Server | None = None
        self.held: dict[tuple[str, int], asyncio.Event] = {}
        self._pumps: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Balancer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._pumps:
            task.cancel()

    @property
    def address(self) -> tuple[str, int]:
        assert self._server is not None
        name: tuple[str, int] = self._server.sockets[0].getsockname()
        return name

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gate = self.held[writer.get_extra_info("peername")] = asyncio.Event()
        gate.set()
        task = asyncio.current_task()
        assert task is not None
        self._pumps.add(task)
        far_writer = None
        try:
            far, far_writer = await asyncio.open_connection(*self._chance.choice(self._replicas).address)
            await asyncio.gather(self._pump(reader, far_writer, gate), self._pump(far, writer, None))
        except OSError:
            pass
        finally:
            self._pumps.discard(task)
            for each in (writer, far_writer):
                if each is not None:
                    each.transport.abort()

    @staticmethod
    async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event | None) -> None:
        while data := await source.read(65536):
            if gate is not None:
                await gate.wait()
            sink.write(data)
            with contextlib.suppress(OSError):  # nobody listens to a held connection any more
                await sink.drain()
        if gate is not None:
            await gate.wait()
            await asyncio.sleep(0.2)  # what it sent is judged before it ends
        sink.close()


@dataclass(eq=False)
class Life:
    """A writer with bytes of its own. `base`, `acknowledged`: the first and the last level that it has heard."""

    segment: str
    writer: bytes
    seed: int
    alike: int = 1
    """So many successive events have the same bytes, as far as they are of one size."""
    base: int | None = None
    acknowledged: int = 0

    def event(self, number: int) -> bytes:
        data = random.Random(f"{self.seed}/{number // self.alike}").randbytes(size_of(number) - 8)
        return HEADER.pack(0, len(data)) + data

    def between(self, start: int, end: int) -> bytes:
        return b"".join(self.event(number) for number in range(ENDS.index(start), ENDS.index(end)))


@dataclass
class History:
    """One history over segments of its own."""

    seed: int
    replicas: list[Receiver]
    balancer: Balancer
    end: int = ENDS[-1]
    """The level of each writer, in the end."""
    lives: list[Life] = field(default_factory=list)
    pause: float = 0.05
    """Longest time between two connections of a writer."""
    alike: int = 3
    """See `Life`."""
    blocks: int = 0
    cuts: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.segments = [f"history-{self.seed}-{number}" for number in range(2)]

    async def run(self, writers: int = 4, kills: int = 2) -> None:
        work = [
            asyncio.create_task(self.write(random.Random(f"{self.seed}/{number}"), number, self._opens))
            for number in range(writers)
        ]
        killing = asyncio.create_task(self._kill(kills))
        try:
            await asyncio.gather(*work, killing)
        finally:
            for task in [*work, killing]:
                task.cancel()

    async def _kill(self, kills: int) -> None:
        for _ in range(kills):
            await asyncio.sleep(self.chance.uniform(0.02, 1.5))
            victim = self.chance.choice(self.replicas)
            victim.kill()
            await restart(victim)

    async def _opens(self) -> Client:
        return await Client.connect(self.balancer.address)

    async def write(self, chance: random.Random, number: int, opens: Callable[[], Awaitable[Client]]) -> None:
        """A writer, life after life, until it has written all."""
        writer, segment = chance.randbytes(16), self.segments[number % 2]
        life = Life(segment, writer, chance.getrandbits(64), self.alike)
        self.lives.append(life)
        while life.acknowledged < self.end:
            if chance.random() < 0.3:
                life = Life(segment, writer, chance.getrandbits(64), self.alike)
                self.lives.append(life)
            with contextlib.suppress(ClosedError, ConnectionError):
                await self._connection(chance, life, opens)
            await asyncio.sleep(chance.uniform(0, self.pause))

    async def _connection(self, chance: random.Random, life: Life, opens: Callable[[], Awaitable[Client]]) -> None:
        """Until it breaks, or is given up, or all is written."""
        client = await opens()
        try:
            client.say(setup(life.segment, life.writer))
            answer = await client.reply()
            assert isinstance(answer, AppendSetup), answer
            level = int(answer.level)
            if life.base is None:
                life.base = level
            assert level >= life.acknowledged, "the level has gone back"
            life.acknowledged = level
            sent, left = level, chance.choice([2, 4, 8, 30])
            while life.acknowledged < self.end:
                while sent < self.end and ENDS.index(sent) - ENDS.index(life.acknowledged) < 40:
                    behind = ENDS[min(ENDS.index(sent) + chance.randint(1, 9), ENDS.index(self.end))]
                    client.say(block(sent, life.between(sent, behind), life.writer))
                    sent = behind
                    self.blocks += 1
                    left -= 1
                    if not left:
                        self._give_up(chance, client)
                        return
                await client.drain()
                answer = await client.reply()
                assert isinstance(answer, DataAppended), answer
                assert answer.level in ENDS
                assert answer.level >= life.acknowledged
                life.acknowledged = answer.level
        finally:
            if not getattr(client, "held", False):
                client.cut()

    def _give_up(self, chance: random.Random, client: Client) -> None:
        """The client goes; what it has said may arrive now, later, or never."""
        self.cuts += 1
        if chance.random() < 0.5:
            return
        client.held = True  # type: ignore[attr-defined]
        gate = self.balancer.held.get(client._writer.get_extra_info("sockname"))
        if gate is not None and chance.random() < 0.7:
            gate.clear()
            asyncio.get_running_loop().call_later(chance.uniform(0.05, 1.0), gate.set)
        asyncio.get_running_loop().call_later(0.01, client._writer.close)


async def violations(history: History, kafka: KafkaSettings) -> list[str]:
    """What was promised and is not so, by the topics and by what the owner answers."""
    records, _ = await since(kafka, kafka.segments_topic, {})
    found, model = judged(history, records, await events(kafka), await quarantined(kafka))
    for name in history.segments:
        if await _content(history, name) != model.segments[name].content:
            found.append(f"{name}: its owner reads other bytes than the log holds")
    return found


async def _content(history: History, name: str) -> bytes:
    """What the owner says that a segment holds. The others end the connection."""
    while True:
        for replica in history.replicas:
            with contextlib.suppress(ClosedError, ConnectionError):
                async with await Client.connect(replica.address) as client:
                    return await client.content(name)
        await asyncio.sleep(0.1)


def judged(
    history: History, log: Iterable[Stored], published_events: Iterable[Stored], rejects: Iterable[Stored]
) -> tuple[list[str], Naive]:
    """What was promised and is not so, and what the log means. Knows the rules from the naive model alone."""
    found: list[str] = []
    model = Naive()
    accepted: dict[tuple[str, bytes], bytearray] = {}
    contents: dict[tuple[str, str, int], bytes] = {}
    for each in log:
        name, record = (each.key or b"").decode(), records.decode(each.value)
        if name not in history.segments:
            continue
        if (why := model.apply(name, record)) is not None:
            found.append(f"{name}: {why}")
        elif isinstance(record, records.Block):
            accepted.setdefault((name, record.writer), bytearray()).extend(record.data)
            at, level = 0, record.before
            while at < len(record.data):
                _, length = HEADER.unpack_from(record.data, at)
                level += 8 + length
                contents[name, record.writer.hex(), level] = record.data[at + 8 : at + 8 + length]
                at += 8 + length
    levels = set(contents)
    for life in history.lives:
        if life.base is None or life.acknowledged == life.base:
            continue
        there = bytes(accepted.get((life.segment, life.writer), b""))[life.base : life.acknowledged]
        if there != life.between(life.base, life.acknowledged):
            found.append(f"{life.segment} {life.writer.hex()}: {life.base} to {life.acknowledged} is not what it wrote")
    for (name, writer), data in accepted.items():
        if len(data) != history.end:
            found.append(f"{name} {writer.hex()}: {len(data)} bytes instead of {history.end}")
    published: set[tuple[str, tuple[str, str, int], bytes]] = set()
    for event in published_events:
        if event["ce_subject"] in history.segments:
            key = event["ce_subject"], event.attributes["writer"], event.attributes["level"]
            published.add((event["ce_id"], key, event.value))
    for each in rejects:
        if each["ce_subject"] in history.segments:
            about = json.loads(each["attributes"])
            key = each["ce_subject"], about["writer"], about["level"]
            assert each["part"] == "1/1"
            published.add((each["id"], key, each.value))
    found_levels = {key for _, key, _ in published}
    if found_levels != levels:
        found.append(f"{len(found_levels - levels)} levels too many on the topics, {len(levels - found_levels)} lack")
    values = {(key, value) for _, key, value in published}
    names = {name for name, _, _ in published}
    if not len(names) == len(values) == len(published):
        found.append(f"{len(values)} events have {len(names)} ids on the topics, in {len(published)} pairs")
    missing = [key for key, data in contents.items() if (key, data) not in values]
    if missing:
        found.append(f"{len(missing)} stored events are not on the topics: {missing[:3]}")
    return found, model
