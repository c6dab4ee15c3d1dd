"""Shares the event loop: work that may take long runs in slices, one at a time in the process, and the loop runs in between.

A slice is a few milliseconds. The lanes have slices in turn, so that no number of workers in one lane delays those in another by
more than a slice. One that is emptied leaves the rest of its slice to the next.

=======  ======================================================  ======================================================
lane     work                                                    next is
=======  ======================================================  ======================================================
SMALL    few bytes to parse, small frames of a partition         who has asked first
SECURED  TLS: a handshake, a millisecond of decrypting           who has asked first
LONG     many bytes to parse, other frames of a partition        whose connection has used the least CPU time
=======  ======================================================  ======================================================

A connection that asks starts near the level of the active connections (as in start-time fair queueing), whatever it has used: at
most `CREDIT` below it, so none accumulates credit, and at most `DEBT` above, where new ones begin. A clock also measures a cold
path or the garbage collector, and the rest of such a charge is forgotten.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import IntEnum
from typing import Final

TIME_SLICE: Final = 0.002
"""Length of a slice in seconds. Short work of several workers shares one slice."""

CREDIT: Final = 0.010
"""CPU seconds below the active connections at which one begins that has used less."""

DEBT: Final = CREDIT / 2
"""CPU seconds above the active connections at which one begins, at most."""

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


class Account:
    """CPU seconds that a connection's long work has taken. A new one has used more than all others."""

    __slots__ = ("used",)

    def __init__(self, used: float = math.inf) -> None:
        self.used = used


class Worker(ABC):
    """Has work for slices. Ask again if there is more."""

    lane: Lane
    account: Account
    """Its use decides when a worker of the long lane is next."""

    entry: Entry | None = None
    """Where it waits."""

    @abstractmethod
    def work(self, until: float) -> None:
        """Works until the time `until` (of the loop) or for one short piece. A worker of the long lane charges its account."""


Entry = tuple[float, int, Worker]
"""A worker that waits: in the long lane what its connection has used, else 0; and a number of its own."""


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
        self._numbers = itertools.count()
        self._lines: list[list[Entry]] = [[] for _ in Lane]  # a heap for each
        self.lane = Lane.SMALL
        """The lane that is served, or is next."""
        self._left = TIME_SLICE  # seconds of the slice left before the loop must run
        self._rest = 0  # turns of the loop before the next slice
        self._rest_until = 0.0
        self._looking = False  # `_turned` is scheduled
        self._floor = 0.0  # what the last of the long lane had used when it began
        self._began = 0.0  # CPU time when the present work began
        self._turn_ends = 0.0  # when the work without slices ends in this turn of the loop; 0: there was none
        self.until = 0.0
        """When the current slice ends (loop time)."""

    # Work in slices

    def ask(self, worker: Worker) -> None:
        """Queues `worker`; if it waits already, it keeps its place unless it comes sooner now. Its `work` is called later."""
        lane = worker.lane
        entry = (self.rank(worker.account) if lane is Lane.LONG else 0.0, next(self._numbers), worker)
        if worker.entry is None or entry < worker.entry:
            worker.entry = entry
            heapq.heappush(self._lines[lane], entry)
            self._look()

    def withdraw(self, worker: Worker) -> None:
        """Takes `worker` out of the queue."""
        worker.entry = None

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
        self.until = now + self._left
        try:
            self._serve()
        finally:  # the other workers continue even if one fails
            spent = self._cpu() - began
            self._left -= spent
            if self._left <= 0 or self._clock() >= self.until:
                self.lane = _after(self.lane)
                self._left, self._rest = TIME_SLICE, REST
                if spent >= OVERLONG:
                    self._rest_until = self._clock() + min(spent * LONG_REST, MOST_REST)
            if self._rest or any(self._lines):
                self._look()

    def _serve(self) -> None:
        """Lets workers work until the slice is over or none waits: those of the lane whose turn it is first."""
        for _ in Lane:
            while (worker := self._next()) is not None:
                self._began = self._cpu() if self.lane is Lane.LONG else 0.0
                worker.work(self.until)
                if self._clock() >= self.until:
                    return
            self.lane = _after(self.lane)

    def _next(self) -> Worker | None:
        """Removes and returns the next worker of the lane whose turn it is."""
        waiting = self._lines[self.lane]
        while waiting:
            entry = heapq.heappop(waiting)
            worker = entry[-1]
            if worker.entry is entry:  # else it has left, or waits elsewhere
                worker.entry = None
                return worker
        return None

    # The use of connections

    def rank(self, account: Account) -> float:
        """Returns by what a connection is compared that has long work: what it has used, near to what active ones have.
        Otherwise one that connects again for each frame would always come first, and so would a crowd that waited for a
        partition in which Kafka stored nothing.
        """
        account.used = min(max(account.used, self._floor - CREDIT), self._floor + DEBT)
        return account.used

    def charge(self, account: Account) -> None:
        """Charges `account` for the present work since it began."""
        self._floor = max(self._floor, account.used)
        now = self._cpu()
        account.used += now - self._began
        self._began = now

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
