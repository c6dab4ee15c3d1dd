"""The memory that replies to reads take, over all connections, until their bytes have left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from headrace_common.connection.backend import Caller

SHARE: Final = 16 << 10
"""Bytes of a caller's reply in the second half of the memory: few enough to leave for the system's buffers at once."""

STALL: Final = 3.0
TAKEN: Final = 16 << 10
"""A caller that takes less of its replies in `STALL` seconds, while others get less than they ask for, gives its room back."""


class ReplyMemory:
    """`limit`: bytes of all callers together. A caller that needs more waits, first come, first served, and `crowded` is called.
    In the second half of the memory each caller has one reply, of `SHARE` at most: however many ask for much and read nothing,
    the others are served. One reply always fits.
    """

    def __init__(self, limit: int, crowded: Callable[[], None]) -> None:
        self.limit = limit
        self.used = 0
        self._crowded = crowded
        self._held: dict[Caller, int] = {}
        self._waiting: dict[asyncio.Future[int], tuple[Caller, int]] = {}  # in order
        self._short = False  # a caller has had less than it asked for
        self._marks: dict[Caller, tuple[int, float]] = {}  # what it had not taken yet, and since when

    @property
    def waiting(self) -> int:
        """Reads that wait for room."""
        return len(self._waiting)

    def take(self, caller: Caller, size: int) -> int:
        """Takes room for a reply of up to `size` bytes, if it is free now. Returns for how many bytes."""
        if self._waiting or not (size := self._fitting(caller, size)):
            return 0
        self._give(caller, size)
        return size

    async def room(self, caller: Caller, size: int) -> int:
        """Does the same as `take`, but waits."""
        if taken := self.take(caller, size):
            return taken
        self._crowded()
        granted: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[granted] = caller, size
        self._grant()
        try:
            return await granted
        except asyncio.CancelledError:
            if self._waiting.pop(granted, None) is None:
                self.release(caller, granted.result())  # it came with the cancellation
            else:
                self._grant()  # those after it may have room
            raise

    def left(self, caller: Caller, size: int) -> None:
        """Reports that `size` bytes of a caller's replies have left, and the connection takes more."""
        self._marks.pop(caller, None)
        self.release(caller, size)

    def release(self, caller: Caller, size: int) -> None:
        """Gives back the room of `size` bytes of a caller's replies."""
        held = self._held.get(caller, 0)
        size = min(size, held)  # it has ended, and holds nothing any more
        self.used -= size
        if held > size:
            self._held[caller] = held - size
        else:
            self._held.pop(caller, None)
        self._grant()

    def ended(self, caller: Caller) -> None:
        """Frees the room of a caller's replies, which are gone."""
        self.release(caller, self._held.get(caller, 0))

    def stalled(self, now: float) -> list[Caller]:
        """Returns the callers that take too little of what they hold, if others have had less than they asked for since this
        was called last. Call it about once a second. `now`: monotonic seconds.
        """
        short, self._short = self._short or bool(self._waiting), False
        if not short:
            self._marks.clear()
            return []
        marks, self._marks = self._marks, {}
        for caller in self._held:
            unread = caller.unread()
            before, since = marks.get(caller, (unread, now))
            if abs(before - unread) >= TAKEN:  # more is written only to a peer that has read
                before, since = unread, now
            if unread:  # else we let it wait
                self._marks[caller] = before, since
        return [caller for caller, (_, since) in self._marks.items() if now - since >= STALL]

    def _fitting(self, caller: Caller, size: int) -> int:
        """Returns how much of a reply has room."""
        if not self.used or self.used + size <= self.limit // 2:
            return size
        self._short = True
        if caller in self._held or self.used + (size := min(size, SHARE)) > self.limit:
            return 0
        return size

    def _give(self, caller: Caller, size: int) -> None:
        self.used += size
        self._held[caller] = self._held.get(caller, 0) + size

    def _grant(self) -> None:
        """Gives room to the waiting callers, in order; passes over one that holds something already, until it may have more."""
        for granted, (caller, size) in list(self._waiting.items()):
            if granted.done():
                continue
            if fitting := self._fitting(caller, size):
                del self._waiting[granted]
                self._give(caller, fitting)
                granted.set_result(fitting)
            elif caller not in self._held:
                return  # later replies would keep it waiting for ever
