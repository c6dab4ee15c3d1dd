"""One timer for all deadlines of a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

RECHECK: Final = 0.5
"""Seconds until a deadline that has passed without effect is looked at again: due to close, but not idle."""


class LazyTimer:
    """Calls `fire` when the first deadline has passed. What happens meanwhile does not move it: it asks `due` when it fires."""

    def __init__(self, due: Callable[[], float | None], fire: Callable[[float], None]) -> None:
        """`due`: the first deadline in monotonic seconds, None if there is none. `fire` gets the time."""
        self._loop = asyncio.get_running_loop()
        self._due = due
        self._fire = fire
        self._handle: asyncio.TimerHandle | None = None
        self._at = 0.0
        self._over = False

    def is_after(self, at: float) -> bool:
        """It fires later than `at`, or is not set."""
        return self._handle is None or at < self._at

    @property
    def is_set(self) -> bool:
        """It is going to fire."""
        return self._handle is not None

    def schedule(self) -> None:
        """A deadline may have come that is earlier."""
        at = self._due()
        if at is not None and not self._over and self.is_after(at):
            self._set(at)

    def stop(self) -> None:
        """Never fires again."""
        self._over = True
        if self._handle is not None:
            self._handle.cancel()

    def replace(self, seconds: float, last: Callable[[], None]) -> None:
        """Calls only `last` from now on, after `seconds`, unless stopped."""
        self.stop()
        self._handle = self._loop.call_later(seconds, last)

    def _set(self, at: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._at = at
        self._handle = self._loop.call_at(at, self._fired)

    def _fired(self) -> None:
        self._handle, now = None, self._loop.time()
        self._fire(now)
        at = None if self._over or self._handle is not None else self._due()
        if at is not None:
            self._set(at if at > now else now + RECHECK)
