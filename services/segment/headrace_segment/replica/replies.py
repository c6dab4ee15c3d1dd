"""The memory that replies to reads take, over all connections, until their bytes have left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace_common.connection.backend import Caller


class ReplyMemory:
    """`limit`: bytes of all callers together. Who needs more waits, first come, first served; `crowded` hears each time.

    While more than half is taken, a caller has room only if it holds nothing: a few that ask for much and read slowly leave
    room for others. One reply always fits.
    """

    def __init__(self, limit: int, crowded: Callable[[], None]) -> None:
        self.limit = limit
        self.used = 0
        self._crowded = crowded
        self._held: dict[Caller, int] = {}
        self._waiting: dict[asyncio.Future[None], tuple[Caller, int]] = {}  # in order

    @property
    def waiting(self) -> int:
        """Reads that wait for room."""
        return len(self._waiting)

    def take(self, caller: Caller, size: int) -> bool:
        """Takes room for a reply of so many bytes, if there is some now."""
        if self._waiting or not self._fits(caller, size):
            return False
        self._give(caller, size)
        return True

    async def room(self, caller: Caller, size: int) -> None:
        """As `take`, but waits."""
        if self.take(caller, size):
            return
        self._crowded()
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[granted] = caller, size
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if self._waiting.pop(granted, None) is None:
                self.release(caller, size)  # it came with the cancellation
            raise

    def release(self, caller: Caller, size: int) -> None:
        """So many bytes of a caller's replies have left, or are not needed."""
        held = self._held.get(caller, 0)
        size = min(size, held)  # it has ended, and holds nothing any more
        self.used -= size
        if held > size:
            self._held[caller] = held - size
        else:
            self._held.pop(caller, None)
        self._grant()

    def ended(self, caller: Caller) -> None:
        """The caller's replies are gone."""
        self.release(caller, self._held.get(caller, 0))

    def _fits(self, caller: Caller, size: int) -> bool:
        room = self.limit // 2 if caller in self._held else self.limit
        return not self.used or self.used + size <= room

    def _give(self, caller: Caller, size: int) -> None:
        self.used += size
        self._held[caller] = self._held.get(caller, 0) + size

    def _grant(self) -> None:
        """Gives room to those who wait, in order; who holds something already is passed over until it may have more."""
        for granted, (caller, size) in list(self._waiting.items()):
            if granted.done():
                continue
            if self._fits(caller, size):
                del self._waiting[granted]
                self._give(caller, size)
                granted.set_result(None)
            elif caller not in self._held:
                return  # what comes behind it would keep it waiting for ever
