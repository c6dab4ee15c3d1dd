"""How long a connection lasts: the timer of its deadlines and, over a stream socket, its phase and its time limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final, Protocol

from headrace_common.connection.deadlines import Limit, Phase, Situation, TimeLimits, next_due, old_from, passed
from headrace_common.connection.driver import Driver
from headrace_common.connection.receiver_state import ReceiverState
from headrace_common.operations.tasks import stood_still
from headrace_common.session.interface import ByteSession

RECHECK: Final = 0.5
"""Seconds until a deadline that has passed without effect is looked at again: due to close for its age, but inside a frame."""


class LazyTimer:
    """Calls `fire` when the first deadline has passed. It is not set again with each event: it asks `due` when it fires."""

    __slots__ = ("_at", "_due", "_fire", "_handle", "_loop", "_over", "is_late")

    def __init__(self, due: Callable[[], float | None], fire: Callable[[float], None]) -> None:
        """`due`: the first deadline in monotonic seconds, or None. `fire` gets the time."""
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
        if at is not None and not self._over and self.is_after(at):
            self._set(at)

    def stop(self) -> None:
        """Stops the timer for good."""
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
        self.is_late = stood_still(now, self._at)
        self._fire(now)
        at = None if self._over or self._handle is not None else self._due()
        if at is not None:
            self._set(at if at > now else now + RECHECK)


class Input(Protocol):
    """The input of a connection, as its lifetime depends on it."""

    reading: bool
    """Its socket is read."""

    def is_behind(self) -> bool:
        """Returns whether received bytes are not parsed yet."""


class Lifetime:
    """A connection's phase, and the timer that looks at its limits."""

    __slots__ = (
        "_always",
        "_budget",
        "_clocks",
        "_driver",
        "_input",
        "_limits",
        "_loop",
        "old_from",
        "phase",
        "timer",
    )

    def __init__(
        self,
        receiver: ReceiverState,
        driver: Driver[ByteSession],
        bytes_in: Input,
        expired: Callable[[float], None],
    ) -> None:
        """`expired` gets the time when a limit may have passed, or the session's deadline."""
        self._driver = driver
        self._input = bytes_in
        self._budget = receiver.budget
        self._clocks = driver.clocks
        self._limits = TimeLimits(receiver.limits.frame_time, receiver.age())
        self._always = bool(self._limits.age)  # a limit applies also between frames
        self.old_from = old_from(driver.clocks, self._limits)
        """When the connection has reached its age."""
        self._loop = asyncio.get_running_loop()
        self.timer = LazyTimer(self._due, expired)
        self.phase = Phase.OPEN

    def advance(self, phase: Phase) -> None:
        """Enters `phase`, unless it is in a later one."""
        self.phase = max(self.phase, phase)

    def enter(self, phase: Phase, seconds: float | None) -> None:
        """Enters `phase` like `advance`, for `seconds` at most; None: without a limit."""
        self.advance(phase)
        self._clocks.phase_until = inf if seconds is None else self._loop.time() + seconds
        self.timer.schedule()

    def passed(self, now: float) -> Limit | None:
        """Returns the most urgent limit that has passed."""
        return passed(self._situation(), self._clocks, self._limits, now)

    def may_end(self) -> bool:
        """Returns whether the connection is between two frames, and nothing would be lost if it ended for its age."""
        driver = self._driver
        return not (driver.partial_bytes or driver.status.unacknowledgeable or driver.status.undecided)

    def fed(self) -> None:
        """Sets the timer if a limit may run now that did not before the session was given bytes."""
        if self._driver.partial_bytes or (self._always and not self.timer.is_set):
            self.timer.schedule()

    def wants(self, due: float) -> None:
        """Sets the timer to the session's deadline `due` if that is earlier."""
        if self.timer.is_after(due):
            self.timer.schedule()

    def _due(self) -> float | None:
        due = next_due(self._situation(), self._clocks, self._limits)
        asked = self._driver.session.deadline()
        return due if asked is None else asked if due is None else min(due, asked)

    def _situation(self) -> Situation:
        return Situation(
            phase=self.phase,
            reading=self._input.reading,
            partial=self._driver.partial_bytes > 0,
            behind=self._input.is_behind(),
            crowded=self._budget.crowded,
            session=self._driver.session.status(),
        )
