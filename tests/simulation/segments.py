"""The segment service in the simulation: its settings, and readers of what is written, whose answers are held against the log."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from typing import Any

from headrace_segment.wire import original, today
from headrace_segment.wire.layout import Table
from headrace_segment.wire.parser import ReplyParser

from tests.simulation.clients import Client, reads
from tests.simulation.network import ClientEnd
from tests.simulation.protocols import WRITTEN
from tests.simulation.scenario import Scenario

PIECE = 3000
"""Bytes that a read asks for at most."""
REPLY_TIME = 400.0
"""Seconds that a client waits for an answer: longer than any deadline of the service."""
LONGEST_PAUSE = 1.0


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
    """Reads a segment from its beginning, and at its end what comes, until all is written. In today's dialect it makes segments
    meanwhile, as others do, and asks how long its own is.
    """

    async def run(self) -> None:
        self._segment, self._offset = WRITTEN[self.number % 2], 0
        self._is_of_today = self.chance.random() < 0.5
        await asyncio.sleep(self.plan.start)
        while not await self._reads():  # noqa: ASYNC110  (a pause between two connections)
            await asyncio.sleep(self.chance.uniform(0, LONGEST_PAUSE))
        self.done = True

    def _is_over(self) -> bool:
        """Whether all that was to be written is."""
        return all(each.done for each in self.world.clients if each.honest and not isinstance(each, Reader))

    async def _reads(self) -> bool:
        """One connection. Returns whether all is read."""
        with contextlib.suppress(OSError):
            talk = Talk(self.world, self.name, await self.connect(), today if self._is_of_today else original)
            if self._is_of_today:
                await talk.greet()
            while True:
                over = self._is_over()
                if self._is_of_today and self.chance.random() < 0.3:
                    await talk.ask(*self._questions())
                answer = await talk.ask(talk.words.ReadSegment(self._segment, self._offset, PIECE))
                if data := getattr(answer, "data", b""):
                    self._offset += len(data)
                    if not (over and self.plan.rough):  # by a slow network it would take a while
                        continue
                if over:
                    return True
                await asyncio.sleep(self.chance.uniform(0, LONGEST_PAUSE / 5))
        for end in self.connections[-1:]:
            end.abort()
        return False

    def _questions(self) -> list[Any]:
        name = f"made-{self.chance.randrange(40)}"
        return [*(today.CreateSegment(n, name, 0, 0) for n in (1, 2)), today.GetSegmentInfo(3, self._segment)]


class Talk:
    """A connection in one of the dialects. Fails the run unless each answer is true."""

    def __init__(self, world: Any, name: str, end: ClientEnd, words: Any) -> None:
        self.words = words
        self._world, self._name, self._end = world, name, end
        self._messages: Table = words.MESSAGES
        self._parser = ReplyParser(self._messages)
        self._known: Counter[str] = Counter()

    async def greet(self) -> None:
        await self._end.send(self._messages.encode(today.Hello(today.NEWEST, today.OLDEST)))
        while not [*self._parser.receive_all(await reads(self._end))]:
            pass

    async def ask(self, *requests: Any) -> Any:
        """Sends requests, and returns the last answer. Raises OSError."""
        waiting = {getattr(each, "request", 0): (each, self._known[each.segment]) for each in requests}
        asked, oracle, answer = len(self._world.broker.log), self._world.oracle, None
        await self._end.send(b"".join(map(self._messages.encode, requests)))
        async with asyncio.timeout(REPLY_TIME):
            while waiting:
                data, version = await self._end.read()
                if not data:
                    raise ConnectionResetError
                for answer in self._parser.receive_all(data):
                    if isinstance(answer, today.KeepAlive | original.KeepAlive):
                        continue
                    request, known = waiting.pop(getattr(answer, "request", 0))
                    oracle.acknowledgements += 1
                    since = self._world.segments.since(request, answer, asked, known, version)
                    if since is None:
                        oracle.fails(f"{self._name} asked {request!r:.300}, and {answer!r:.200} is not so")
                    else:
                        self._known[request.segment] = max(since, self._known[request.segment])
        return answer
