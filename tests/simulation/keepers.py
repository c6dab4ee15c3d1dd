"""Clients that make segments, and use them meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import Any

from headrace_segment.wire import today

from tests.segment import speaking, speaking_today
from tests.segment.client import ClosedError
from tests.segment.recorded import W1
from tests.simulation.answers import Talk
from tests.simulation.clients import Client
from tests.simulation.scenario import ClientPlan
from tests.simulation.segments import PIECE
from tests.simulation.talking import LONGEST_PAUSE, Today

KEEPING = 60.0
"""Seconds after which a keeper begins nothing more, whatever it has done."""
WRITERS = W1, W1[8:] + W1[8:]
"""Of all keepers, so that one takes another's over."""


class Keeper(Client):
    """Makes segments, appends to them and reads them, beside others that do the same with the same writers."""

    def __init__(self, world: Any, name: str, plan: ClientPlan, index: int) -> None:
        super().__init__(world, name, plan, index)
        self._left = plan.frames
        self._sent: set[tuple[str, str, int, bytes]] = set()
        self._numbers = itertools.count(1)

    def says(self, *event: Any) -> bool:
        """Whether it has sent this event."""
        return event in self._sent

    async def run(self) -> None:
        await asyncio.sleep(self.plan.start)
        self._until = self.world.loop.now + KEEPING
        while self._left > 0 and self.world.loop.now < self._until:
            with contextlib.suppress(OSError, ClosedError):
                await self._connection()
            await asyncio.sleep(self.chance.uniform(0, LONGEST_PAUSE))
        self.done = True

    async def _connection(self) -> None:
        self._sessions: dict[bytes, tuple[str, int, int]] = {}  # by writer: the segment, which session it is, the level
        self._opened = 0
        blocks: list[tuple[int, int, bytes]] = []
        self._blocks = blocks

        def wrote(session: int, _: bytes, before: int, after: int) -> bytes:
            return b"".join(data for place, level, data in blocks if place == session and before < level <= after)

        client = Today(await self.connect(), Talk(self.world, self.name, wrote))
        try:
            await client.greet()
            while self._left > 0 and self.world.loop.now < self._until:
                self._left -= 1
                await (self._appends(client) if self.chance.random() < 0.6 else self._asks(client))
                await self.rest()
        finally:
            client.cut()

    async def _asks(self, client: Today) -> None:
        """Requests about segments."""
        numbers = {next(self._numbers) for _ in range(self.chance.randint(1, 4))}
        for number in sorted(numbers):
            client.say(self._request(number))
        await self._answers(client, numbers)

    async def _answers(self, client: Today, numbers: set[int]) -> Any:
        """The last answer to these requests."""
        while numbers:
            answer = await client.reply()
            numbers.discard(getattr(answer, "request", 0))
        return answer

    def _request(self, number: int) -> bytes:
        chance, segment = self.chance, self.chance.choice(self.world.segments.kept)
        state = self.world.segments.states[segment][-1]
        offset = chance.choice(
            (0, state.length // 2, chance.randint(0, state.length), chance.randint(0, state.length + 40))
        )
        requests = (
            today.ReadSegment(segment, offset, chance.choice((50, PIECE)), "", number),
            today.GetSegmentInfo(number, segment),
            today.CreateSegment(number, segment, 0, 0),
        )
        (chosen,) = chance.choices(requests, (8, 4, 6))
        return speaking_today.say(chosen)

    async def _appends(self, client: Today) -> None:
        """Some blocks of one writer, which it sets up before if need be."""
        chance, segment, writer = self.chance, self.chance.choice(self.world.segments.kept), self.chance.choice(WRITERS)
        if self._sessions.get(writer, ("",))[0] != segment or chance.random() < 0.1:
            self._sessions.pop(writer, None)
            number = next(self._numbers)
            client.say(speaking_today.setup(segment, writer, number))
            answer = await self._answers(client, {number})
            if not isinstance(answer, today.AppendSetup):
                return
            self._sessions[writer] = segment, self._opened, max(0, answer.level)
            self._opened += 1
        (segment, session, level), number = self._sessions[writer], 0
        for _ in range(chance.choice((1, 2, 8))):
            number, data = next(self._numbers), self._data()
            level += len(data) + chance.choice((0, 0, 0, 5))
            for at, event in enumerate(data, level - len(data) + 1):
                self._sent |= {(segment, writer.hex(), at, event), (segment, writer.hex(), level, event)}
            self._blocks.append((session, level, speaking.events(*data)))
            client.say(speaking_today.append(level, *data, writer=writer, request=number))
        self._sessions[writer] = segment, session, level
        await self._answers(client, {number})

    def _data(self) -> list[bytes]:
        """Events, of which some are like others."""
        chance = self.chance
        one = f"{self.name}/{len(self.connections)}/{next(self._numbers)}".encode()
        return [
            chance.choice((one, b"same", b"same")) + bytes(1100 * (chance.random() < 0.05))
            for _ in range(chance.choice((1, 1, 3)))
        ]
