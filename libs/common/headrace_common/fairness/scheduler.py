"""Shares the event loop fairly: long work runs in slices, one at a time in the process, and the loop runs in between.

A slice is a few milliseconds of building a frame's events (inflating, decoding, encoding) or of parsing a client's bytes.
Long work: the scheduler picks the connection that has used the least CPU time (least attained service). A connection that
returns after a rest starts slightly below the level of the active connections (as in start-time fair queueing), so no
connection accumulates credit and short work overtakes long work. A connection therefore waits for one slice of the most
expensive connection, not for everything that the other has sent. Nor does it keep a debt: a clock also measures a cold path
or the garbage collector, and the rest of such a charge is forgotten beyond `DEBT` when its next frame arrives.

Small frames are charged by their size, which has no noise, and to one account that all connections share: they are first come,
first served, one frame of each connection at a time. So none waits while another connection is served twice. The account's
share is that of the connections whose small frames wait, and at least half: many small frames and a few long ones do not starve
each other, and no number of connections with long work makes a small frame wait for a turn of each. Parsing few bytes likewise.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from typing_extensions import override

from headrace_common.fairness.workers import FIRST, Account, Worker, WorkerQueue

TIME_SLICE: Final = 0.002
"""Length of a slice in seconds. Short work of several connections shares one slice."""

QUANTUM: Final = 0.010
"""CPU seconds spent on one frame before another is begun. Ordinary frames finish within it. If two frames of the same age
alternated slices, both would finish only when the later one does."""

DEBT: Final = QUANTUM / 2
"""CPU seconds above the active connections at which one begins, at most, after all of its frames were built."""

SMALL_COST: Final = 50e-6
BYTE_COST: Final = 30e-9
"""CPU seconds that a small frame is charged, and each of its bytes: about what they cost."""

MADE_COST: Final = 15e-6
"""CPU seconds that a small frame is charged whose events were made when it arrived."""

TOGETHER: Final = 8 * MADE_COST
"""CPU seconds of small frames that are charged at a time, and by which a slice may last longer: a sixteenth of it."""

REST: Final = 4
"""Loop iterations between two slices: an answer from Kafka needs several to become an acknowledgement."""

LONG: Final = 0.010
"""CPU seconds from which a slice counts as overlong (it could not stop inside one huge event). After it the loop rests for a
time, not only for iterations: other connections' answers have waited, and Kafka takes milliseconds to answer them."""

LONG_REST: Final = 1 / 8
"""The rest after an overlong slice, as a part of its length; at most `MOST_REST` seconds."""

MOST_REST: Final = 0.010

ARRIVAL_TIME: Final = QUANTUM / 2
"""Seconds of one turn of the loop in which bytes are parsed as they arrive. What arrives later in that turn waits for a slice:
each parse is short, but thousands of sockets may be ready at once. Reports to clients may take as long."""

TOLD: Final = 16
"""Clients that are told between two looks whether this turn of the loop has time left: thousands may wait for one answer."""


def small_cost(size: int) -> float:
    """Returns the CPU seconds that a small frame of `size` bytes is charged whose events were not made when it arrived."""
    return SMALL_COST + size * BYTE_COST


class TurnTime:
    """Bounds one kind of short work in each turn of the loop."""

    def __init__(self, clock: Callable[[], float], soon: Callable[[Callable[[], None]], object]) -> None:
        """`clock`, `soon`: the loop's `time` and `call_soon`."""
        self._clock = clock
        self._soon = soon
        self.until = 0.0
        """When the time of this turn is over; 0 before the first call in a turn."""

    def __call__(self, now: float) -> bool:
        """Returns whether the work may go on at `now` (loop time): this turn of the loop has time left for it."""
        if not self.until:
            self.until = now + ARRIVAL_TIME
            self._soon(self._next)
        return now < self.until

    async def wait(self) -> None:
        """Waits until a turn of the loop has time left for the work; not at all if this one has."""
        while not self(self._clock()):  # noqa: ASYNC110  (each turn begins by itself)
            await asyncio.sleep(0)

    def _next(self) -> None:
        self.until = 0.0


class FairScheduler:
    """Grants slices. `loop`: by default the running one; `cpu`: reads CPU time in seconds."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop | None = None, cpu: Callable[[], float] = time.thread_time
    ) -> None:
        loop = loop or asyncio.get_running_loop()
        self._clock = loop.time
        self._cpu = cpu
        self._soon = loop.call_soon
        self._at = loop.call_at
        self.small = Account()
        """The account of all small frames."""
        self._queue = WorkerQueue(self.small)
        self._later: dict[Worker, None] | None = None  # those that ask during a turn; None: there is none
        self._left = TIME_SLICE  # seconds of work left before the loop must run
        self.resting = False
        """The slice is over: the loop must run first."""
        self._rested = 0
        self._rest_until = 0.0
        self._looking = False  # `_turned` is scheduled
        self._floor = 0.0  # what the last worker had used when it began
        self._began = 0.0
        self._taken = 0.0  # when `take` last agreed (loop time)
        self.arrives = TurnTime(self._clock, self._soon)
        """Whether bytes that arrive at a time (loop time) may be parsed at once."""
        self.reports = TurnTime(self._clock, self._soon)
        """Whether frames may be reported at a time as stored or abandoned."""
        self.sharing = 0
        """Connections whose small frames wait for a slice, not for Kafka."""
        self.long = 0
        """Connections whose next frame, which waits for a slice, is not small."""
        self.until = 0.0
        """When the current slice ends (loop time)."""

    def account(self) -> Account:
        """Makes a new connection's account, with the debt that a returning one may have at most: otherwise a client that connects
        again for each frame would always come first.
        """
        return Account(self._floor + DEBT)

    def enter(self, account: Account) -> None:
        """Lets an idle connection, or the small frames, take part again: they have work."""
        account.used = min(max(account.used, self._least()), self._floor + DEBT)

    def counted(self, used: float) -> float:
        """Returns the use by which an account is compared: `used`, but at least a quantum less than the active accounts have.
        Otherwise all connections of a crowd would come first that waited in one queue, or for a partition in which Kafka stored
        nothing.
        """
        return max(used, self._least())

    def _least(self) -> float:
        """Returns the least use that a returning account is given."""
        return self._floor - QUANTUM

    def take(self, worker: Worker) -> bool:
        """Returns whether `worker` may work at once: the slice has time left and no queued worker comes first. Else `ask`."""
        if self.resting or (self._queue and worker.virtual_time() > self._queue.least()):
            return False
        self._taken = self._clock()
        self.until = self._taken + self._left
        return True

    def ask(self, worker: Worker) -> None:
        """Queues `worker`. The scheduler calls `granted` once, at the earliest in the next loop iteration."""
        if self._later is None or worker in self._queue:
            self._queue.add(worker)
        else:
            self._later[worker] = None
        self._look()

    def withdraw(self, worker: Worker) -> None:
        """Takes `worker` out of the queue."""
        self._queue.remove(worker)
        if self._later is not None:
            self._later.pop(worker, None)

    def granted(self) -> None:
        """Restarts the wall time of a slice that was granted earlier and begins only now."""
        self._taken = self._clock()
        self.until = self._taken + self._left

    def begin(self, account: Account) -> None:
        """Begins to charge `account`."""
        account.used = self.counted(account.used)
        self._floor = max(self._floor, account.used)
        self._began = self._cpu()

    def end(self, account: Account) -> float:
        """Charges `account` for the work since `begin`. Returns its CPU seconds."""
        spent = self._cpu() - self._began
        account.used += spent
        self._left -= spent
        small = self.small
        if account is not small and small.used > (least := self._least()):
            small.used = max(least, small.used - spent)  # it may use as much as all others together
        now = self._clock()
        if self._left <= 0 or now >= self.until:
            self.resting = True
            if spent >= LONG:
                self._rest_until = now + min(spent * LONG_REST, MOST_REST)
            self._look()
        return spent

    def small_built(self, cost: float) -> None:
        """Charges small frames that `small_cost` estimates at `cost`, built since `take` or since the last such call."""
        small, now = self.small, self._clock()
        spent, self._taken = now - self._taken, now
        small.used, self._floor = self.counted(small.used), max(self._floor, small.used)
        # Many small frames and a few long ones share by their number.
        small.used += cost if self.long >= self.sharing else cost * (self.long or 1) / self.sharing
        self._left -= cost if cost > spent else spent
        if self._left <= 0:
            self.resting = True
            self._look()

    def _look(self) -> None:
        if not self._looking:
            self._looking = True
            self._soon(self._turned)

    def _turned(self) -> None:
        """Grants the slice, or the rest of one, to the next worker: the loop has run."""
        self._looking = False
        if self.resting and self._rested < REST:
            self._rested += 1
            self._look()
            return
        if self.resting and self._clock() < self._rest_until:
            self._looking = True
            self._at(self._rest_until, self._turned)
            return
        if self.resting:
            self.resting, self._rested, self._left = False, 0, TIME_SLICE
        # A worker that asks again waits for the next iteration. With one worker in each iteration, a queue of workers that come
        # faster would never end, however short their work is.
        self._later = {}
        try:
            for worker in self._queue.turn():
                if not self._grant(worker):
                    break
        finally:  # the other workers continue even if one fails
            later, self._later = self._later, None
            for worker in later:
                self._queue.add(worker)
            if self._queue or self.resting:
                self._look()  # after `granted`, so that its own call_soon runs first

    def _grant(self, worker: Worker) -> bool:
        """Grants the rest of the slice to `worker`. Returns whether it has worked and left some of it."""
        self.until = self._clock() + self._left
        return worker.granted() and not self.resting


class Slices(Worker):
    """The slices of a task, which awaits them. Make it inside a running event loop."""

    def __init__(self, scheduler: FairScheduler, virtual_time: Callable[[], float]) -> None:
        self._loop = asyncio.get_running_loop()
        self._scheduler = scheduler
        self._virtual_time = virtual_time
        self._slice: asyncio.Future[bool] | None = None  # true: it has a slice
        self._first = False

    async def next(self, *, first: bool = False) -> bool:
        """Waits for a slice. False: `leave` was called instead. `first`: before all other work."""
        self._slice, self._first = self._loop.create_future(), first
        self._scheduler.ask(self)
        granted = await self._slice
        self._first = False
        if granted:
            self._scheduler.granted()
        return granted

    def leave(self) -> None:
        """Ends a wait for a slice."""
        if self._slice is not None and not self._slice.done():
            self._scheduler.withdraw(self)
            self._slice.set_result(False)

    def close(self) -> None:
        """Leaves the scheduler's queue."""
        self._scheduler.withdraw(self)

    @override
    def virtual_time(self) -> float:
        return FIRST if self._first else self._virtual_time()

    @override
    def granted(self) -> bool:
        assert self._slice is not None
        if not self._slice.done():
            self._slice.set_result(True)
        return False
