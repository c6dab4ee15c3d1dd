"""The timer of a connection's deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final

from headrace_common.operations.tasks import stood_still

RECHECK: Final = 0.5
"""Seconds until a deadline that has passed without effect is looked at again: due to close for its age, but inside a frame."""


class LazyTimer:
    """Calls `fire` when the first deadline has passed. It is not set again with each event: it asks `due` when it fires."""

    __slots__ = ("_at", "_due", "_fire", "_handle", "_loop", "_over", "is_late")

    def __init__(self, due: Callable[[], float], fire: Callable[[float], None]) -> None:
        """`due`: the first deadline in monotonic seconds, infinite if there is none. `fire` gets the time."""
        self._loop = asyncio.get_running_loop()
        self._due = due
        self._fire = fire
        self._handle: asyncio.TimerHandle | None = None
        self._at = 0.0
        self._over = False
        self.is_late = False
        """It fires, or has fired, after the process stood still."""

    def is_after(self, at: float) -> bool:
        """Returns whether it fires later than `at`, or is not set."""
        return self._handle is None or at < self._at

    @property
    def is_set(self) -> bool:
        """Whether it is going to fire."""
        return self._handle is not None

    def schedule(self) -> None:
        """Sets the timer earlier if a deadline has come that is."""
        at = self._due()
        if at < inf and not self._over and self.is_after(at):
            self._set(at)

    def stop(self) -> None:
        """Stops the timer for good."""
        self._over = True
        if self._handle is not None:
            self._handle.cancel()

    def _set(self, at: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._at = at
        self._handle = self._loop.call_at(at, self._fired)

    def _fired(self) -> None:
        self._handle, now = None, self._loop.time()
        self.is_late = stood_still(now, self._at)
        self._fire(now)
        if self._over or self._handle is not None:
            return
        if (at := self._due()) < inf:
            self._set(at if at > now else now + RECHECK)
