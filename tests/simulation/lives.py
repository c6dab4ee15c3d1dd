"""Writers of the original dialect in the simulation, life after life, and what the topics must hold of them in the end.

A writer's n-th event has a size of its own, so whoever writes it again, with whatever bytes, brings the same levels. A life of a
writer has bytes of its own above the first level that it hears, and they never change; a new life has others. A client may go
while what it has sent arrives later, when the writer has another session.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from headrace_segment.store import records
from headrace_segment.wire.original import AppendSetup, DataAppended

from tests.contract.topic import Stored
from tests.segment.client import ClosedError
from tests.segment.speaking import block, setup
from tests.simulation.answers import Talk
from tests.simulation.clients import Client
from tests.simulation.talking import LONGEST_PAUSE, Patient

EVENT_BYTES = 1024
HEADER = struct.Struct(">ii")
EVENTS = 400
"""Of a writer, at most."""


def size_of(number: int) -> int:
    """The bytes of a writer's event, its header included: some are too large for the events topic."""
    return 8 + (EVENT_BYTES + 8 if number % 23 == 11 else 24)


ENDS = [0]
for _number in range(EVENTS):
    ENDS.append(ENDS[-1] + size_of(_number))


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


class Writer(Client):
    """Writes a segment until it has written all."""

    async def run(self) -> None:
        history, chance = self.world.history, self.chance
        history.writing += 1
        await asyncio.sleep(self.plan.start)
        segment, writer = history.segments[self.number % 2], chance.randbytes(16)
        life: Life | None = None
        while life is None or life.acknowledged < history.end:
            if life is None or chance.random() < 0.3:
                life = Life(segment, writer, chance.getrandbits(64), history.alike)
                history.lives.append(life)
            with contextlib.suppress(ClosedError, OSError):
                await self._connection(life)
            await asyncio.sleep(chance.uniform(0, LONGEST_PAUSE))
        history.writing -= 1
        self.done = True

    async def _connection(self, life: Life) -> None:
        """Until it breaks, or is given up, or all is written."""
        lives, end = tuple(self.world.history.lives), self.world.history.end

        def wrote(_: int, writer: bytes, before: int, after: int) -> bytes:
            mine = [each for each in lives if each.writer == writer][-1]
            return mine.between(before, after) if {before, after} <= {*ENDS} else b""

        client, held = Patient(await self.connect(), Talk(self.world, self.name, wrote)), False
        try:
            answer = await client.ask(setup(life.segment, life.writer))
            assert isinstance(answer, AppendSetup), answer
            self._hears(life, answer.level)
            sent, left = life.acknowledged, self.chance.choice([2, 4, 8, 30])
            while life.acknowledged < end:
                while sent < end and ENDS.index(sent) - ENDS.index(life.acknowledged) < 40:
                    behind = ENDS[min(ENDS.index(sent) + self.chance.randint(1, 9), ENDS.index(end))]
                    client.say(block(sent, life.between(sent, behind), life.writer))
                    sent, left = behind, left - 1
                    if not left:
                        held = self._gives_up(client)
                        return
                await client.drain()
                answer = await client.reply()
                assert isinstance(answer, DataAppended), answer
                self._hears(life, answer.level)
        finally:
            if not held:
                client.cut()

    def _hears(self, life: Life, level: int) -> None:
        if level not in ENDS or level < life.acknowledged:
            self.oracle.fails(f"{self.name} hears of level {level}, and heard of {life.acknowledged} before")
        life.base = level if life.base is None else life.base
        life.acknowledged = level

    def _gives_up(self, client: Patient) -> bool:
        """The client goes; what it has said arrives now; or, if this returns True, later or never."""
        if self.chance.random() < 0.5:
            return False
        stream = cast("Any", client._writer)
        stream.end.slow_down(self.chance.choice((0.001, 0.05, 1.0)))
        self.world.loop.call_later(self.chance.uniform(0.1, 5.0), stream.close)
        return True

    def says(self, segment: str, writer: str, level: int, value: bytes) -> bool:
        """Whether it has sent this event."""
        lives = [each for each in self.world.history.lives if (each.segment, each.writer.hex()) == (segment, writer)]
        return level in ENDS and any(each.event(ENDS.index(level) - 1)[8:] == value for each in lives)


def judged(
    lives: Iterable[Life],
    end: int,
    log: Iterable[Stored],
    published_events: Iterable[Stored],
    rejects: Iterable[Stored],
) -> list[str]:
    """What was promised to these lives and is not so. Each of their writers has written up to `end`."""
    found: list[str] = []
    segments = {life.segment for life in lives}
    accepted: dict[tuple[str, bytes], bytearray] = {}
    levels: set[tuple[str, str, int]] = set()
    for each in log:
        name, record = (each.key or b"").decode(), records.decode(each.value)[0]
        if name in segments and isinstance(record, records.Block):
            accepted.setdefault((name, record.writer), bytearray()).extend(record.data)
            at = 0
            while at < len(record.data):
                at += 8 + HEADER.unpack_from(record.data, at)[1]
                levels.add((name, record.writer.hex(), record.before + at))
    for life in lives:
        if life.base is None or life.acknowledged == life.base:
            continue
        there = bytes(accepted.get((life.segment, life.writer), b""))[life.base : life.acknowledged]
        if there != life.between(life.base, life.acknowledged):
            found.append(f"{life.segment} {life.writer.hex()}: {life.base} to {life.acknowledged} is not what it wrote")
    for (name, writer), data in accepted.items():
        if len(data) != end:
            found.append(f"{name} {writer.hex()}: {len(data)} bytes instead of {end}")
    published: set[tuple[str, tuple[str, str, int], bytes]] = set()
    for event in published_events:
        if event["ce_subject"] in segments:
            key = event["ce_subject"], event.attributes["writer"], event.attributes["level"]
            published.add((event["ce_id"], key, event.value))
    for each in rejects:
        if each["ce_subject"] in segments:
            about = json.loads(each["attributes"])
            published.add((each["id"], (each["ce_subject"], about["writer"], about["level"]), each.value))
    if (found_levels := {key for _, key, _ in published}) != levels:
        found.append(f"{len(found_levels - levels)} levels too many on the topics, {len(levels - found_levels)} lack")
    values = {(key, value) for _, key, value in published}
    names = {name for name, _, _ in published}
    if not len(names) == len(values) == len(published):
        found.append(f"{len(values)} events have {len(names)} ids on the topics, in {len(published)} pairs")
    return found
