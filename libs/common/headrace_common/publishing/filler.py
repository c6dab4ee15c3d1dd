"""Fills produce cycles: builds the events of the frames that wait for one pump, one slice at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from enum import Enum
from typing import Final

from typing_extensions import override

from headrace_common.fairness.budget import Growth, GrowthPool
from headrace_common.fairness.scheduler import FIRST, QUANTUM, TIME_SLICE, FairScheduler, Worker
from headrace_common.operations.log import Log
from headrace_common.publishing.batch import Batch
from headrace_common.publishing.fair_queue import FairQueue
from headrace_common.publishing.in_flight_frame import InFlightFrame
from headrace_common.publishing.produce_cycle import ProduceCycle, records
from headrace_common.record.event import Part, Reject
from headrace_common.session.interface import Pause

LOOK: Final = 8
"""Parts between two checks of the clock."""

LONG_BATCH: Final = 512 << 10
"""Bytes of a cycle after which a frame that has used its quantum waits for the next cycle."""

LARGE: Final = 1 << 10
"""Bytes of an event from which the clock is checked after each event."""

Turn = Callable[[], asyncio.Future[None] | None]
"""Returns what is done when a broker takes a batch; None: now."""


class Step(Enum):
    """How a slice of work on a frame ended."""

    WHOLE = "all of it is in the cycle"
    FULL = "the cycle is full"
    LATER = "the slice is over"
    PARKED = "it waits for memory"


class CycleFiller(Worker):
    """Holds the frames that wait for one pump and builds their events."""

    def __init__(self, scheduler: FairScheduler, growth: Growth, log: Log, turn: Turn) -> None:
        """`turn`: when a batch would be sent that is handed over now."""
        self._scheduler = scheduler
        self._growth = growth
        self._log = log
        self._turn = turn
        self._turn_comes: asyncio.Future[None] | None = None  # what a cycle that could leave waits for
        self._queue = FairQueue(scheduler)
        self._parked: set[asyncio.Task[None]] = set()
        self._slice: asyncio.Future[bool] | None = None  # true: it has a slice
        self._delivering = False
        self._arrived = asyncio.Event()
        self._clock: Callable[[], float] = asyncio.get_running_loop().time

    def add(self, frame: InFlightFrame) -> None:
        """Queues a frame."""
        self._queue.add(frame)
        if not self._arrived.is_set():
            self._arrived.set()

    def remove(self, frame: InFlightFrame) -> None:
        """Removes an abandoned frame. If it waited for memory, the next of its connection can continue."""
        self._queue.remove(frame)
        self._arrived.set()

    async def has_work(self) -> None:
        """Waits until a frame can continue."""
        while not self._queue:
            self._arrived.clear()
            await self._arrived.wait()

    def close(self) -> None:
        """Stops building events."""
        self._turn_comes = None
        self._scheduler.withdraw(self)
        for task in self._parked:
            task.cancel()

    @override
    def virtual_time(self) -> float:
        return FIRST if self._delivering else self._queue.virtual_time()

    @override
    def granted(self) -> bool:
        assert self._slice is not None
        if not self._slice.done():
            self._slice.set_result(True)
        return False

    async def _next_slice(self) -> bool:
        """Waits for a slice. False: the cycle may leave instead."""
        self._slice = asyncio.get_running_loop().create_future()
        self._scheduler.ask(self)
        if not await self._slice:
            return False
        self._scheduler.granted()
        return True

    def _may_leave(self) -> bool:
        """Whether a cycle that could leave would be sent at once. If not, it is filled on until its turn comes."""
        if self._turn_comes is None:
            self._turn_comes = self._turn()
            if self._turn_comes is not None:
                self._turn_comes.add_done_callback(self._its_turn)
        return self._turn_comes is None or self._turn_comes.done()

    def _its_turn(self, turn: asyncio.Future[None]) -> None:
        """The cycle in hand leaves as it is."""
        if turn is not self._turn_comes:
            return  # it was full before
        self._arrived.set()
        if self._slice is not None and not self._slice.done():
            self._scheduler.withdraw(self)
            self._slice.set_result(False)

    async def fill(self, cycle: ProduceCycle) -> None:
        """Adds parts of frames until the cycle is full; or it holds the end of a frame, its broker can be sent it, and no frame
        waits or more work would have to wait for a slice.
        """
        queue = self._queue
        goes_on = False  # a small frame was built, and its slice is not over
        self._turn_comes = None
        while True:
            if not queue:
                if not cycle.whole or self._may_leave():  # not whole: all that waited was abandoned meanwhile
                    return
                goes_on = False
                self._arrived.clear()
                await self._arrived.wait()
                continue
            if not goes_on and not self._scheduler.take(self):
                if cycle.whole and self._may_leave():
                    return
                if not await self._next_slice():
                    return
                if not queue:
                    continue
            frame = queue.next()
            if frame.dead:
                queue.remove(frame)
                continue
            if frame.small:
                if not self._add_small(frame, cycle):
                    return
                goes_on = not self._scheduler.resting and queue.goes_on()
                continue
            goes_on = False
            self._scheduler.begin(frame.account)
            step = self._take(frame, cycle)
            frame.cost += self._scheduler.end(frame.account)
            if step is Step.WHOLE:
                queue.remove(frame)
                cycle.whole = True
            elif step is Step.PARKED:
                queue.park()
            else:
                queue.later(frame)
                if step is Step.FULL or (frame.cost >= QUANTUM and cycle.size >= LONG_BATCH):
                    return

    def _add_small(self, frame: InFlightFrame, cycle: ProduceCycle) -> bool:
        """Adds a small frame to the cycle. Returns whether the cycle has room for more."""
        made: list[Part] | None = frame.made
        if not made:
            try:
                made = frame.frame.at_once()
            except Exception as error:
                made = [self._spoiled(frame, error)]
            self._scheduler.small_built(frame.frame.size)
        if made is None:
            self._queue.enlarge(frame)
            return True
        added = cycle.add(made, frame)
        if added or not made:
            cycle.frames[frame] = None
            frame.built += added
        if added < len(made):
            frame.made = made[added:]
            return False
        frame.exhausted = True
        self._queue.remove(frame)
        cycle.whole = True
        return True

    def _take(self, frame: InFlightFrame, cycle: ProduceCycle) -> Step:
        """Moves the frame's parts into the cycle until the slice is over, the cycle is full or the frame is exhausted."""
        clock, until = self._clock, self._scheduler.until
        if frame.growing:
            step = self._grow(frame, until)
            if step is not None:
                return step
        made, frame.made = frame.made or self._make(frame, 1, until), []
        while made:
            added = cycle.add(made, frame)
            if added:
                cycle.frames[frame] = None
                frame.built += added
            if added < len(made):
                frame.made = made[added:]
                return Step.FULL
            look = LOOK if len(made[-1]) < LARGE else 1
            over = clock() >= until
            made = self._make(frame, 1 if over else look, until)
            if over and made:  # one part ahead, so that the end of the frame shows at once
                frame.made = made
                return Step.LATER
        if frame.halfway:
            return Step.LATER
        frame.exhausted = True
        cycle.frames[frame] = None
        return Step.WHOLE

    def _grow(self, frame: InFlightFrame, until: float) -> Step | None:
        """Lets the frame inflate up to its first part. Returns None when the frame has that part, or has none at all."""
        found: Part | Pause | None
        while True:
            try:
                found = next(frame.parts, None)
            except Exception as error:
                found = self._spoiled(frame, error)
            if not isinstance(found, Pause):
                break
            wanted = self._growth.pool(frame.grown + found.grown, frame.reserved) if found.grown else None
            if wanted is not None:
                pool, size = wanted
                taken = pool.take(size)
                if not taken:
                    frame.restart()
                    self._park(frame, pool, size)
                    return Step.PARKED
                frame.reserve(taken, pool.give_back)
            frame.grown += found.grown
            if self._clock() >= until:
                return Step.LATER
        frame.growing = False
        frame.shrink(frame.grown)
        frame.made = [] if found is None else [found]
        return None

    def _park(self, frame: InFlightFrame, pool: GrowthPool, size: int) -> None:
        """The frame waits for memory while other frames of this partition continue."""

        async def wait() -> None:
            taken = await pool.reserve(size, frame.account.used)
            if frame.dead:
                pool.give_back(taken)
                return
            frame.reserve(taken, pool.give_back)
            self._queue.back(frame)
            self._arrived.set()

        task = asyncio.create_task(wait())
        self._parked.add(task)
        task.add_done_callback(self._parked.discard)

    def _make(self, frame: InFlightFrame, most: int, until: float) -> list[Part]:
        """The frame's next parts, at most `most`. An empty list means that none are left, or that the slice ended halfway in one
        (`InFlightFrame.halfway`).
        """
        made: list[Part] = []
        frame.halfway = False
        try:
            for part in frame.parts:
                if not isinstance(part, Pause):
                    made.append(part)
                    if len(made) == most:
                        break
                elif self._clock() >= until:
                    frame.halfway = True
                    break
        except Exception as error:
            made.append(self._spoiled(frame, error))  # after the parts that were made before
        return made

    def _spoiled(self, frame: InFlightFrame, error: Exception) -> Reject:
        """A bug in Headrace: the whole frame, as received, replaces its remaining parts."""
        self._log.exception("building a frame's events failed", ticket=frame.frame.ticket)
        frame.parts = iter(())
        return frame.frame.spoiled(f"{type(error).__name__}: {error}")

    async def quarantine(
        self, rejects: list[tuple[InFlightFrame, Reject]], new_batch: Callable[[], Batch], limit: int
    ) -> AsyncIterator[Batch]:
        """The rejects' records, one batch at a time. Building them runs in slices, like all long work."""
        scheduler, until = self._scheduler, self._clock() + TIME_SLICE
        self._turn_comes = None
        batch = new_batch()
        for owner, reject in rejects:
            scheduler.begin(owner.account)
            for record in records(reject, limit):
                if record and not batch.add(record, owner):
                    scheduler.end(owner.account)
                    yield batch
                    scheduler.begin(owner.account)
                    batch = new_batch()
                    batch.add(record, owner)
                if self._clock() >= until:
                    scheduler.end(owner.account)
                    self._delivering = True
                    await self._next_slice()
                    self._delivering = False
                    until = scheduler.until
                    scheduler.begin(owner.account)
            scheduler.end(owner.account)
        yield batch
