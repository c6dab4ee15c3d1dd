"""The publisher of one partition of the events topic. Read it from top to bottom: collect, store events, store rejects, report.

It has no linger time: frames that arrive during one cycle form the next, and a cycle is filled on only while a request to its
broker is under way. Every acknowledgement goes through `Pump._report`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict, deque
from functools import partial
from typing import Final

from aiokafka.structs import TopicPartition
from typing_extensions import override

from headrace_common.fairness.scheduler import TOLD, Lane, Scheduler, Worker
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy
from headrace_common.publishing.batch import Batch, Cycle
from headrace_common.publishing.delivery import OVERDUE, Delivery
from headrace_common.publishing.in_flight import NO_DEADLINE, DeliveryListener, FrameQueue, Growth, InFlightFrame
from headrace_common.publishing.rejects import batches, refusal
from headrace_common.session.interface import Frame

RETRY_PAUSE: Final = 0.1
"""Seconds until records are sent again under another identity."""

NEVER: Final = float("-inf")


class Pump:
    """Carries frames to one partition."""

    def __init__(self, partition: int, delivery: Delivery, scheduler: Scheduler, growth: Growth) -> None:
        settings = delivery.settings
        self.where = TopicPartition(settings.events_topic, partition)
        self._ack_deadline = settings.ack_deadline
        self._batch_bytes = settings.batch_bytes
        self._delivery = delivery
        self._scheduler = scheduler
        self._growth = growth
        self._metrics = delivery.metrics
        self._log = delivery.log
        self._clock = asyncio.get_running_loop().time
        self._queue = FrameQueue()
        self._small, self._long = _Making(self, Lane.SMALL), _Making(self, Lane.LONG)
        self._failure: Exception | None = None  # a bug in a slice
        self._cycle: Cycle | None = None  # that collects records
        self._pending: OrderedDict[InFlightFrame, None] = OrderedDict()  # neither stored nor abandoned
        self._next_answer: asyncio.Future[None] | None = None  # what a cycle that could leave waits for
        self._changed = asyncio.Event()
        self.last_stored = self.refused_at = NEVER
        """When a batch was stored last, on either topic; when a frame with events was abandoned last."""

    def publish(self, frame: Frame, listener: DeliveryListener) -> None:
        """Takes a frame. `listener` learns the outcome later, never within this call."""
        now = self._clock()
        deadline = NO_DEADLINE if frame.kept else now + self._ack_deadline
        taken = InFlightFrame(frame, listener, now, deadline)
        self._pending[taken] = None
        cycle, queue = self._cycle, self._queue
        if taken.exhausted and cycle is not None and not cycle.full and not queue.has(listener):
            could_leave = cycle.whole
            joined = cycle.add_some(taken)  # without a slice: nothing was left to do for it
            if cycle.full or not could_leave:  # else it waits for an answer, however many join
                self._changed.set()
            if joined:
                return
        queue.add(taken)
        self._enqueue()

    async def run(self) -> None:
        """Runs until it is cancelled. Any other end is a bug and stops the service."""
        while True:
            cycle = await self._collect()
            while cycle.living():
                failure = await self._store_events(cycle) or await self._store_rejects(cycle)
                if failure is None:
                    break
                await self._give_up(cycle, failure)

    # Collect

    async def _collect(self) -> Cycle:
        """Returns the next cycle: a full one, or one that holds the end of a frame and whose broker is free for it."""
        limit = self._delivery.events.batch_bytes(self._batch_bytes)
        cycle = self._cycle = Cycle(Batch(self.where.topic, self.where.partition, limit), limit)
        self._next_answer = None
        self._enqueue()
        while self._failure is None and not (cycle.full or (cycle.whole and self._may_leave())):
            if cycle.frames and not (cycle.whole or self._queue):  # all of them were abandoned meanwhile
                break
            await self._changed.wait()
            self._changed.clear()
        self._cycle = None
        if self._failure is not None:
            raise self._failure
        return cycle

    def _enqueue(self) -> None:
        """Queues the making of records of frames that wait for slices, while a cycle collects them."""
        if self._cycle is None or self._cycle.full:
            return
        if self._queue.small:
            self._scheduler.enqueue(self._small)
        if self._queue.long:
            self._scheduler.enqueue(self._long)

    def make(self, lane: Lane, until: float) -> None:
        """Moves records of the frames of a lane into the cycle, for a slice. A bug ends the pump's run: slices run outside of its
        task.
        """
        if (cycle := self._cycle) is not None and not cycle.full:
            try:
                self._make(self._queue.small if lane is Lane.SMALL else self._queue.long, cycle, until)
            except Exception as error:
                self._failure = error
        self._made()

    def _make(self, line: deque[InFlightFrame], cycle: Cycle, until: float) -> None:
        """Makes records of one frame after the other. A long one that is not whole when the slice ends lets others go first."""
        queue, clock, may_grow, log = self._queue, self._clock, self._may_grow, self._log
        ends = False
        while line and not ends:
            frame = line.popleft()
            whole = frame.make(until, clock, may_grow, log) and cycle.add_some(frame)
            ends = cycle.full or clock() >= until
            if whole:
                queue.done(frame)
            elif frame.small or (line is queue.long and not ends and not frame.waits):
                line.appendleft(frame)
            elif not frame.waits:
                queue.put(frame)

    def _made(self) -> None:
        """Lets the cycle leave, or collect more."""
        self._enqueue()
        self._changed.set()

    def _may_grow(self, frame: InFlightFrame) -> bool:
        """Returns whether a frame may hold the bytes to which it has grown. If not, it waits while other frames go on."""
        frame.waits = not self._growth.reserve(frame, partial(self._goes_on, frame))
        return not frame.waits

    def _goes_on(self, frame: InFlightFrame) -> None:
        frame.waits = False
        self._queue.put(frame)
        self._enqueue()

    def _may_leave(self) -> bool:
        """Returns whether a cycle that could leave would be sent at once. If not, it is filled on until its turn comes."""
        if self._next_answer is None and (coming := self._delivery.producer.next_answer(self.where)) is not None:
            self._next_answer = coming
            coming.add_done_callback(lambda _: self._changed.set())
        return self._next_answer is None or self._next_answer.done()

    # Store events

    async def _store_events(self, cycle: Cycle) -> DeliveryError | None:
        """Sends the batch and reports the frames without rejects in this cycle. Returns the failure, if any."""
        if (batch := cycle.batch) is not None and (events := len(batch)):
            try:
                refused = await self._delivery.store(batch, cycle.deadline())
            except DeliveryError as failure:
                return failure
            self._metrics.events_stored.inc(events - len(refused))
            self.last_stored = self._clock()
            for record, owner in refused:
                cycle.rejects.append((owner, refusal(record)))
        cycle.batch = None
        await self._report(cycle)
        return None

    # Store rejects

    async def _store_rejects(self, cycle: Cycle) -> DeliveryError | None:
        """Sends the rejects to the quarantine topic and reports their frames. Returns the failure, if any."""
        if not cycle.rejects:
            return None
        topic = self._delivery.quarantine
        limit = topic.batch_bytes(self._batch_bytes)
        empty = partial(Batch, topic.name, self.where.partition % topic.partitions, limit)
        async for batch in batches(cycle.rejects, empty, limit, self._scheduler.breathe):
            if cycle.rejects_in_doubt:
                self._metrics.events_republished.inc(batch.doubt())
            try:
                refused = await self._delivery.store(batch, cycle.deadline())
            except DeliveryError as failure:
                cycle.rejects_in_doubt = True  # batches before this one are stored, and all of them are built again
                return failure
            if refused:
                return DeliveryError("Kafka refuses a quarantine record", DeliveryPolicy.REFUSED)
            self.last_stored = self._clock()
        stored, cycle.rejects = cycle.rejects, []
        for _, reject in stored:
            self._metrics.events_quarantined.labels(reject.reason.value).inc()
        await self._report(cycle)
        return None

    # Report

    async def _report(self, cycle: Cycle) -> None:
        """Reports the living frames of which nothing is left to send in this cycle: Kafka has stored all their parts in it.

        The only place that reports frames as stored. Reports each once, many in several turns of the loop; leaves frames whose
        rejects are not stored yet.
        """
        assert cycle.batch is None
        unsent = {owner for owner, _ in cycle.rejects}
        for number, frame in enumerate([frame for frame in cycle.frames if frame not in unsent]):
            if number % TOLD == 0:
                await self._scheduler.breathe()
            del cycle.frames[frame]
            if frame.abandoned:
                continue
            whole = frame.exhausted and not frame.made
            if whole:
                self._growth.release(frame)
                del self._pending[frame]
            frame.listener.stored(frame.ticket, frame.built, whole)

    # Or give up

    async def _give_up(self, cycle: Cycle, error: DeliveryError) -> None:
        """Abandons the frames of the cycle if a retry cannot help, else those that are overdue, and waits before the retry."""
        if error.policy is DeliveryPolicy.RETRY:
            await self.expire()
            await asyncio.sleep(RETRY_PAUSE)
            return
        if cycle.batch is not None:
            self.refused_at = self._clock()
        for number, frame in enumerate(cycle.living()):
            if number % TOLD == 0:
                await self._scheduler.breathe()
            if not frame.abandoned:
                self._abandon(frame, error)

    async def expire(self) -> None:
        """Abandons the frames whose deadline has passed. Their batch goes on: its other frames still wait for it."""
        now, error = self._clock(), DeliveryError(OVERDUE, DeliveryPolicy.RETRY)
        waiting = (frame for frame in self._pending if frame.deadline < NO_DEADLINE)  # in the order of their deadlines
        overdue = list(itertools.takewhile(lambda frame: frame.deadline <= now, waiting))
        for number, frame in enumerate(overdue):
            if number % TOLD == 0:
                await self._scheduler.breathe()
            if frame in self._pending:
                self._abandon(frame, error)
        if overdue:
            self.refused_at = now
            self._queue.drop_abandoned()

    def _abandon(self, frame: InFlightFrame, error: DeliveryError) -> None:
        """Abandons a frame. If it waited for memory, the next of its connection can continue."""
        frame.abandoned = True
        frame.made.clear()
        frame.finish()
        self._growth.release(frame)
        if frame.waits:
            self._queue.done(frame)
        self._made()
        del self._pending[frame]
        frame.listener.abandoned(frame.ticket, error)

    # What is known of it

    def waiting(self) -> int:
        """Returns how many frames are not stored yet."""
        return len(self._pending)

    def oldest(self) -> float | None:
        """Returns when the longest-waiting frame was submitted."""
        return next(iter(self._pending)).submitted if self._pending else None


class _Making(Worker):
    """Makes the records of a pump's frames in one lane."""

    def __init__(self, pump: Pump, lane: Lane) -> None:
        self._pump = pump
        self.lane = lane

    @override
    def work(self, until: float) -> None:
        self._pump.make(self.lane, until)
