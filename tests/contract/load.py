"""Clients that stay connected, and note how long each acknowledgement took."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import defaultdict
from dataclasses import dataclass

from tests.contract.dialect import ContractClient, Dialect
from tests.contract.topic import Stored
from tests.contract.waiting import PATIENCE


@dataclass(frozen=True)
class Heard:
    """An acknowledgement: of `number`, at `at` (monotonic), so many seconds after it was sent."""

    number: int
    at: float
    waited: float


class Load:
    """`clients` of one receiver, each with one frame on its way and then a pause, until it is told to end.

    The frame of `number` is one event, ``{"mark": …, "n": number}``. A client that the receiver cuts off is a failure.
    """

    def __init__(self, dialect: Dialect, address: tuple[str, int], clients: int, pause: float) -> None:
        self.mark = uuid.uuid4().hex
        self.heard: list[Heard] = []
        self._dialect = dialect
        self._address = address
        self._pause = pause
        self._next = 0
        self._ending = False
        self._running = [asyncio.create_task(self._run()) for _ in range(clients)]

    async def end(self) -> None:
        """Waits until every frame that was sent is acknowledged."""
        self._ending = True
        await asyncio.gather(*self._running)

    def cancel(self) -> None:
        for client in self._running:
            client.cancel()

    async def _run(self) -> None:
        async with await ContractClient.connect(self._dialect, self._address) as client:
            while not self._ending:
                number, self._next = self._next, self._next + 1
                began = time.monotonic()
                sent = await client.send([{"mark": self.mark, "n": number, "text": "x" * (number % 300)}])
                await client.receives(sent, 3 * PATIENCE)
                now = time.monotonic()
                self.heard.append(Heard(number, now, now - began))
                await asyncio.sleep(self._pause)

    def lost(self, records: list[Stored]) -> set[int]:
        """Numbers that were acknowledged and are not among `records`."""
        stored = {record.json["n"] for record in records}
        return {heard.number for heard in self.heard} - stored

    def repeated(self, records: list[Stored]) -> int:
        """How many numbers are there under several ids: the lake would keep both."""
        ids = defaultdict(set)
        for record in records:
            ids[record.json["n"]].add(record.id)
        return sum(len(names) > 1 for names in ids.values())
