"""Waits until a reader has passed the end that its partition had at the time of a request."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable


class EndBarrier:
    """A barrier for one partition with one reader. "There is nothing more" is a true answer only after `passed`.

    `end_offset` asks Kafka for the offset after the partition's last record. A request that arrives during such a query waits
    for the next query, since Kafka must report the end after the request arrived.
    """

    def __init__(self, end_offset: Callable[[], Awaitable[int]]) -> None:
        self._end_offset = end_offset
        self._position = 0  # the next offset of the reader
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []  # heap of ends not reached yet
        self._order = itertools.count()
        self._asking: asyncio.Task[int] | None = None
        self._next: asyncio.Task[int] | None = None

    def advance(self, position: int) -> None:
        """Learns that the reader has processed everything before `position`."""
        self._position = position
        while self._waiting and self._waiting[0][0] <= position:
            *_, reached = heapq.heappop(self._waiting)
            if not reached.done():
                reached.set_result(None)

    async def passed(self) -> int:
        """Waits until the reader has passed the current end, and returns that end. Raises what `end_offset` raises."""
        end = await asyncio.shield(self._ask())
        if end > self._position:
            reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (end, next(self._order), reached))
            await reached
        return end

    def _ask(self) -> asyncio.Task[int]:
        """Returns a query to Kafka that begins after this call. Concurrent callers share it."""
        if self._next is None:
            self._next = asyncio.create_task(self._after(self._asking))
        return self._next

    async def _after(self, before: asyncio.Task[int] | None) -> int:
        if before is not None:
            await asyncio.wait({before})
        self._asking, self._next = self._next, None
        return await self._end_offset()
