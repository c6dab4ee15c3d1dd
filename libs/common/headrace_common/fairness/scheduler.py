"""Shares the event loop: work that may take long runs in slices, one at a time in the process, and the loop runs in between.

A slice is a few milliseconds. The lanes have slices in turn, so that no number of workers in one lane delays those in another by
more than a slice. One that is emptied leaves the rest of its slice to the next. In a lane the worker that came first is next.

=======  ======================================================
lane     work
=======  ======================================================
SMALL    few bytes to parse, small frames of a partition
SECURED  TLS: a handshake, a millisecond of decrypting
LONG     many bytes to parse, other frames of a partition
=======  ======================================================
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Final

TIME_SLICE: Final = 0.002
"""Length of a slice in seconds. Short work of several workers shares one slice."""

REST: Final = 4
"""Loop iterations between two slices: an answer from Kafka needs several to become an acknowledgement."""

OVERLONG: Final = 0.010
"""CPU seconds from which a slice counts as overlong (it could not stop inside one huge event). After it the loop rests for a
time, not only for iterations: other connections' answers have waited, and Kafka takes milliseconds to answer them."""

LONG_REST: Final = 1 / 8
"""The rest after an overlong slice, as a part of its length; at most `MOST_REST` seconds."""

MOST_REST: Final = 0.010

ARRIVAL_TIME: Final = 0.005
"""Seconds of one turn of the loop for work that needs no slice: bytes that are parsed as they arrive, reports to clients. Each is
short, but thousands of sockets may be ready at once. What has no time left waits for a slice, or for a later turn."""

TOLD: Final = 16
"""Clients that are told between two looks whether this turn of the loop has time left: thousands may wait for one answer."""


class Lane(IntEnum):
    """A kind of work, as the module's table explains."""

    SMALL = 0
    SECURED = 1
    LONG = 2


class Worker(ABC):
    """Has work for slices. Is enqueued again if there is more."""

    lane: Lane
    queued = False
    """It waits for a slice."""

    @abstractmethod
    def work(self, until: float) -> None:
        """Works until the time `until` (of the loop) or for one short piece."""


class Scheduler:
    """Grants slices. `loop`: by default the running one; `cpu`: reads CPU time in seconds."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop | None = None, cpu: Callable[[], float] = time.thread_time
    ) -> None:
        loop = loop or asyncio.get_running_loop()
        self._clock = loop.time
        self._cpu = cpu
        self._soon = loop.call_soon
        self._at = loop.call_at
        self._lines: list[deque[Worker]] = [deque() for _ in Lane]
        self._lane = Lane.SMALL  # that is served, or is next
        self._left = TIME_SLICE  # seconds of the slice left before the loop must run
        self._rest = 0  # turns of the loop before the next slice
        self._rest_until = 0.0
        self._looking = False  # `_turned` is scheduled
        self._turn_ends = 0.0  # when the work without slices ends in this turn of the loop; 0: there was none

    # Work in slices

    def enqueue(self, worker: Worker) -> None:
        """Queues `worker`; if it waits already, it keeps its place. Its `work` is called later."""
        if not worker.queued:
            worker.queued = True
            self._lines[worker.lane].append(worker)
            self._look()

    def withdraw(self, worker: Worker) -> None:
        """Takes `worker` out of the queue."""
        worker.queued = False

    def _look(self) -> None:
        if not self._looking:
            self._looking = True
            self._soon(self._turned)

    def _turned(self) -> None:
        """Grants the slice, or the rest of one: the loop has run."""
        self._looking = False
        if self._rest:
            self._rest -= 1
            self._look()
            return
        now = self._clock()
        if now < self._rest_until:
            self._looking = True
            self._at(self._rest_until, self._turned)
            return
        began = self._cpu()
        until = now + self._left
        try:
            self._serve(until)
        finally:  # the other workers continue even if one fails
            spent = self._cpu() - began
            self._left -= spent
            if self._left <= 0 or self._clock() >= until:
                self._lane = _after(self._lane)
                self._left, self._rest = TIME_SLICE, REST
                if spent >= OVERLONG:
                    self._rest_until = self._clock() + min(spent * LONG_REST, MOST_REST)
            if self._rest or any(self._lines):
                self._look()

    def _serve(self, until: float) -> None:
        """Lets workers work until the slice is over or none waits: those of the lane whose turn it is first."""
        for _ in Lane:
            while (worker := self._next()) is not None:
                worker.work(until)
                if self._clock() >= until:
                    return
            self._lane = _after(self._lane)

    def _next(self) -> Worker | None:
        """Removes and returns the next worker of the lane whose turn it is."""
        waiting = self._lines[self._lane]
        while waiting:
            worker = waiting.popleft()
            if worker.queued:  # else it has left
                worker.queued = False
                return worker
        return None

    # Work without slices

    def arrives(self, now: float) -> bool:
        """Returns whether short work may be done at `now` (loop time) without a slice: this turn of the loop has time for it."""
        if not self._turn_ends:
            self._turn_ends = now + ARRIVAL_TIME
            self._soon(self._next_turn)
        return now < self._turn_ends

    async def breathe(self) -> None:
        """Waits until a turn of the loop has time for short work; not at all if this one has."""
        while not self.arrives(self._clock()):  # noqa: ASYNC110  (each turn begins by itself)
            await asyncio.sleep(0)

    def _next_turn(self) -> None:
        self._turn_ends = 0.0


def _after(lane: Lane) -> Lane:
    return Lane((lane + 1) % len(Lane))
