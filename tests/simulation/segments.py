"""The segment service in the simulation: its settings, and readers of what is written."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

from headrace_segment.wire import original, today

from tests.segment import speaking, speaking_today
from tests.segment.client import ClosedError
from tests.simulation.answers import Talk
from tests.simulation.clients import Client
from tests.simulation.scenario import Scenario
from tests.simulation.talking import LONGEST_PAUSE, Patient, Today

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


class Reader(Client):
    """Reads a segment from its beginning, and at its end what comes, until all is written."""

    async def run(self) -> None:
        names, self._offset = self.world.segments.names, 0
        await asyncio.sleep(self.plan.start)
        while not await self._reads(names[self.number % len(names)]):  # noqa: ASYNC110  (a pause between two connections)
            await asyncio.sleep(self.chance.uniform(0, LONGEST_PAUSE))
        self.done = True

    def _is_over(self) -> bool:
        """Whether all that was to be written is."""
        return all(each.done for each in self.world.clients if each.honest and not isinstance(each, Reader))

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
                over = self._is_over()
                answer = await client.ask(ask(segment, self._offset, PIECE))
                if isinstance(answer, today.SegmentRead | original.SegmentRead) and answer.data:
                    self._offset += len(answer.data)
                    if not (over and self.plan.rough):  # by a slow network it would take a while
                        continue
                if over:
                    return True
                await asyncio.sleep(self.chance.uniform(0, LONGEST_PAUSE / 5))
        if client is not None:
            client.cut()
        return False
