"""Turns: long work goes a slice at a time, one slice at a time in the whole process, and the loop turns in between.

A slice is some milliseconds of making a frame's events (inflating, decoding, encoding) or of looking through what a client
has sent. Next is always the connection whose work has cost the least processor time (least attained service); one that
comes back after a rest starts where those that work stand, less a little (as in start-time fair queueing), so that nobody
saves up turns, and short work passes by long work. So what anybody waits for is one slice of the dearest connection, not all
of what that has sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

TURN: Final = 0.002
"""Seconds of a slice. Short work of several connections shares one."""

QUANTUM: Final = 0.010
"""CPU seconds of a frame that are spent on it before another is begun: honest frames are done by then. Two of the same age
that took slices in turns would both be done when the later one is."""

REST: Final = 4
"""Turns of the loop between two slices: an answer from Kafka takes some to become an acknowledgement."""

LONG: Final = 0.010
"""CPU seconds of a slice that could not be ended in time (one huge event). Behind such a one the loop also gets time, not only
turns: others' answers have waited, and Kafka's answer to what they sent takes milliseconds."""

LONG_REST: Final = 1 / 8
"""Of a slice that was too long, what others get behind it; at most `MOST_REST` seconds."""

MOST_REST: Final = 0.010

FIRST: Final = float("-inf")
"""The urgency of what is to be finished before anything else is begun."""


class Account:
    """What one connection's work has cost, in CPU seconds; less than nobody's who works was when it began again."""

    __slots__ = ("used",)

    def __init__(self, used: float = 0.0) -> None:
        self.used = used


class Worker(Protocol):
    """Who has long work to do."""

    def urgency(self) -> float:
        """Whose is least is next; looked at when a turn is given away."""

    def granted(self) -> None:
        """It is its turn: it works now or, at the latest, when the loop has turned once."""


class Turns:
    """Gives turns. `loop`: the running one if not given; `cpu`: processor time in seconds."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop | None = None, cpu: Callable[[], float] = time.thread_time
    ) -> None:
        loop = loop or asyncio.get_running_loop()
        self._clock = loop.time
        self._cpu = cpu
        self._soon = loop.call_soon
        self._at = loop.call_at
        self._line: dict[Worker, None] = {}
        self._left = TURN  # seconds of work until the loop has to turn
        self._resting = False  # until it has
        self._rested = 0
        self._rest_until = 0.0
        self._looking = False  # `_turned` is to be called
        self._floor = 0.0  # what the one who worked last had used when it began
        self._began = 0.0
        self.until = 0.0
        """When the slice that has begun is over (wall time)."""

    def account(self) -> Account:
        """Of a new connection: it begins a slice behind those that are there, or ever new ones would always be first."""
        return Account(self._floor + TURN)

    def enter(self, account: Account) -> None:
        """A connection that had nothing to do has something."""
        account.used = max(account.used, self._floor - QUANTUM)

    def take(self, worker: Worker) -> bool:
        """Whether it may work at once: there is time left of this slice, and nobody in line comes first. Otherwise `ask`."""
        if self._resting or (self._line and worker.urgency() > min(each.urgency() for each in self._line)):
            return False
        self.until = self._clock() + self._left
        return True

    def ask(self, worker: Worker) -> None:
        """Puts it in line; `granted` is called once, when the loop has turned at least once."""
        self._line.setdefault(worker)
        self._look()

    def withdraw(self, worker: Worker) -> None:
        """It wants no turn any more."""
        self._line.pop(worker, None)

    def granted(self) -> None:
        """A worker's slice begins only now, though it was granted before."""
        self.until = self._clock() + self._left

    def begin(self, account: Account) -> None:
        """Work for `account` begins."""
        self._floor = max(self._floor, account.used)
        self._began = self._cpu()

    def end(self, account: Account) -> float:
        """It pauses or is done; CPU seconds that it took."""
        spent = self._cpu() - self._began
        account.used += spent
        self._left -= spent
        now = self._clock()
        if self._left <= 0 or now >= self.until:
            self._resting = True
            if spent >= LONG:
                self._rest_until = now + min(spent * LONG_REST, MOST_REST)
            self._look()
        return spent

    def _look(self) -> None:
        if not self._looking:
            self._looking = True
            self._soon(self._turned)

    def _turned(self) -> None:
        """The loop has turned: gives the slice, or what is left of one, to the next in line."""
        self._looking = False
        if self._resting and self._rested < REST:
            self._rested += 1
            self._look()
            return
        if self._resting and self._clock() < self._rest_until:
            self._looking = True
            self._at(self._rest_until, self._turned)
            return
        if self._resting:
            self._resting, self._rested, self._left = False, 0, TURN
        if self._line:
            worker = min(self._line, key=lambda worker: worker.urgency())
            del self._line[worker]
            self.until = self._clock() + self._left
            try:
                worker.granted()
            finally:  # whatever became of it, the others' turns come
                self._look()  # behind what `granted` has called soon: it works first
