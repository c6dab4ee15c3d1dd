"""The publisher of one partition of the events topic. Read it from top to bottom: take, store events, store rejects, report.

It has no linger time: frames that arrive during one cycle form the next, and a cycle is filled on only while a request to its
broker is under way. Every acknowledgement goes through `Pump._report`.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Final

from aiokafka.structs import TopicPartition

from headrace_common.fairness.budget import Growth, GrowthPool
from headrace_common.fairness.scheduler import MADE_COST, QUANTUM, TOGETHER, TOLD, FairScheduler, Slices, small_cost
from headrace_common.kafka.producer import Producer
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy
from headrace_common.operations.log import Log, RateLimited
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import KafkaSettings
from headrace_common.publishing.batch import Batch, Cycle, Step
from headrace_common.publishing.delivery import OVERDUE, Delivery, PartitionRefusal
from headrace_common.publishing.in_flight import NO_DEADLINE, DeliveryListener, FairQueue, InFlightFrame, Pending
from headrace_common.publishing.rejects import batches, refusal, tell
from headrace_common.publishing.topics import Topics
from headrace_common.record.event import Part
from headrace_common.session.interface import UNTIL_DEADLINE, Frame, KeepUntil, Pause

LOOK: Final = 8
"""Parts between two checks of the clock."""

LARGE: Final = 1 << 10
"""Bytes of an event from which the clock is checked after each event."""

AGAIN: Final = 5.0
"""Seconds until records that Kafka has refused are sent again, if they are kept."""


class Pump:
    """Carries frames to one partition."""

    def __init__(
        self,
        partition: int,
        settings: KafkaSettings,
        topics: Topics,
        producer: Producer,
        delivery: Delivery,
        scheduler: FairScheduler,
        growth: Growth,
        metrics: ReceiverMetrics,
        log: Log,
    ) -> None:
        self.where = TopicPartition(settings.events_topic, partition)
        self._ack_deadline = settings.ack_deadline
        self._batch_bytes = settings.batch_bytes
        self._topics = topics
        self._producer = producer
        self._delivery = delivery
        self._scheduler = scheduler
        self._growth = growth
        self._metrics = metrics
        self._limited = RateLimited(log, burst=1, interval=60.0)
        self._loop = asyncio.get_running_loop()
        self._clock = self._loop.time
        self._queue = FairQueue(scheduler)
        self._slices = Slices(scheduler, self._queue.virtual_time)
        self._pending = Pending(partial(self._abandon, error=DeliveryError(OVERDUE, DeliveryPolicy.RETRY)))
        self._parked: set[asyncio.Task[None]] = set()
        self._turn: asyncio.Future[None] | None = None  # what a cycle that could leave waits for
        self._arrived = self._loop.create_future()
        self.connections = 0  # whose partition this is
        self.idle = asyncio.Event()  # no frame waits or is in flight
        self.idle.set()
        self.last_stored = self._clock()
        self.has_stored = False
        self.refused: PartitionRefusal | None = None
        self._ended = False  # by a bug: frames published from now on are abandoned

    def publish(self, frame: Frame, listener: DeliveryListener) -> None:
        """Takes a frame. `listener` learns the outcome later, never within this call."""
        now = self._clock()
        deadline = now + self._ack_deadline if frame.kept is UNTIL_DEADLINE else NO_DEADLINE
        self.submit(InFlightFrame(frame, listener, now, deadline))
        if self._ended:
            self._loop.call_soon(self._abandon_all)

    def submit(self, frame: InFlightFrame) -> None:
        """Takes a frame with its deadline."""
        pending = self._pending
        if not pending:
            self.idle.clear()
        pending[frame] = None
        self._queue.add(frame)
        if not self._arrived.done():
            self._wake()
        if frame.deadline < pending.at:
            pending.watch(frame.deadline)

    async def run(self) -> None:
        """Runs until it is cancelled. Any other end is a bug and stops the service. It then abandons all frames at once, so that
        their clients do not wait in vain.
        """
        try:
            while True:
                if not self._pending:
                    self.idle.set()
                while not self._queue:
                    await self._arrival()
                limit = self._topics.events.batch_bytes(self._batch_bytes)
                cycle = Cycle(Batch(self.where.topic, self.where.partition, limit), limit)
                await self._take(cycle)
                self._queue.pause(self._clock())
                while cycle.living():
                    cycle.drop_abandoned()
                    failure = await self._store_events(cycle) or await self._store_rejects(cycle)
                    if failure is None:
                        break
                    await self._give_up(cycle, failure)
                    if failure.policy is not DeliveryPolicy.RETRY and cycle.living():
                        await self._keep(cycle, failure)
                self._queue.resume()
        except Exception:
            self._ended = True
            self._abandon_all()
            raise
        finally:
            self._turn = None
            self._slices.close()
            self._pending.close()
            for task in self._parked:
                task.cancel()

    # Take

    async def _take(self, cycle: Cycle) -> None:
        """Adds parts of frames until the cycle is full; earlier if it holds the end of a frame, its broker is free for it, and no
        frame waits or the next one would have to wait for a slice.
        """
        queue = self._queue
        self._turn = None
        while True:
            if not queue:
                if not cycle.whole or self._may_leave():  # not whole: all that waited was abandoned meanwhile
                    return
                await self._arrival()
                continue
            if not self._scheduler.take(self._slices):
                if cycle.whole and self._may_leave():
                    return
                if not await self._slices.next():
                    return
                if not queue:
                    continue
            frame = queue.next()
            if frame.abandoned:
                queue.remove(frame)
                continue
            if frame.small:
                if not self._take_small(cycle):
                    return
                continue
            self._scheduler.begin(frame.account)
            step = self._take_some(frame, cycle)
            frame.cost += self._scheduler.end(frame.account)
            if step is Step.WHOLE:
                frame.finish()
                cycle.whole = True
                queue.remove(frame)
            elif step is Step.PARKED:
                queue.park()
            else:
                queue.later(frame)
                if step is Step.FULL or (frame.cost >= QUANTUM and cycle.is_long()):
                    return

    def _take_small(self, cycle: Cycle) -> bool:
        """Moves small frames into the cycle, one of each connection in turn, for a slice. Returns whether it has room left."""
        queue, scheduler, cost, has_room = self._queue, self._scheduler, 0.0, True
        while has_room and not scheduler.resting and (frame := queue.next_small()) is not None and not frame.abandoned:
            made: list[Part] | None = frame.made
            if not made:
                if (inner := frame.frame).made:
                    made, cost = inner.at_once(), cost + MADE_COST
                else:
                    made, cost = frame.at_once(self._limited), cost + small_cost(inner.size)
                if cost >= TOGETHER:
                    scheduler.small_built(cost)
                    cost = 0.0
            if made is None:
                queue.enlarge(frame)
                continue
            if (added := cycle.add(made, frame)) < len(made):
                frame.made, has_room = made[added:], False
            else:
                frame.exhausted = cycle.whole = True  # it is small, and keeps what it has
                queue.remove(frame)
        scheduler.small_built(cost)
        return has_room

    def _take_some(self, frame: InFlightFrame, cycle: Cycle) -> Step:
        """Moves parts of a frame into the cycle until the slice is over, the cycle is full or there are no more."""
        clock, until, log = self._clock, self._scheduler.until, self._limited
        if frame.growing and (step := self._grow(frame, until)) is not None:
            return step
        made, frame.made = frame.made or frame.make(1, clock, until, log), []
        while made:
            if (added := cycle.add(made, frame)) < len(made):
                frame.made = made[added:]
                return Step.FULL
            look = LOOK if len(made[-1]) < LARGE else 1
            over = clock() >= until
            made = frame.make(1 if over else look, clock, until, log)
            if over and made:  # one part ahead, so that the end of the frame shows at once
                frame.made = made
                return Step.LATER
        if frame.halfway:
            return Step.LATER
        cycle.frames[frame] = None
        return Step.WHOLE

    def _grow(self, frame: InFlightFrame, until: float) -> Step | None:
        """Lets the frame inflate up to its first parts. Returns None when the frame has these, or has none at all."""
        while isinstance(found := frame.grow(self._limited), Pause):
            wanted = self._growth.pool(frame.grown + found.grown, frame.reserved) if found.grown else None
            if wanted is not None:
                pool, size = wanted
                if not (taken := pool.take(size)):
                    frame.restart()
                    self._park(frame, pool, size)
                    return Step.PARKED
                frame.reserve(taken, pool.give_back)
            frame.grown += found.grown
            if self._clock() >= until:
                return Step.LATER
        frame.growing = False
        frame.shrink(frame.grown)
        frame.made = found
        return None

    def _park(self, frame: InFlightFrame, pool: GrowthPool, size: int) -> None:
        """Lets the frame wait for memory while other frames of this partition continue."""

        async def wait() -> None:
            taken = await pool.reserve(size, frame.account.used)
            if frame.abandoned:
                pool.give_back(taken)
                return
            frame.reserve(taken, pool.give_back)
            self._queue.back(frame)
            self._wake()

        task = asyncio.create_task(wait())
        self._parked.add(task)
        task.add_done_callback(self._parked.discard)

    async def _arrival(self) -> None:
        """Waits until a frame arrives or can continue, or the cycle's turn comes."""
        self._arrived = self._loop.create_future()
        await self._arrived

    def _wake(self) -> None:
        if not self._arrived.done():
            self._arrived.set_result(None)

    def _may_leave(self) -> bool:
        """Returns whether a cycle that could leave would be sent at once. If not, it is filled on until its turn comes."""
        if self._turn is None and (turn := self._producer.turn(self.where)) is not None:
            self._turn = turn
            turn.add_done_callback(self._its_turn)
        return self._turn is None or self._turn.done()

    def _its_turn(self, turn: asyncio.Future[None]) -> None:
        """Lets the cycle in hand leave as it is."""
        if turn is self._turn:  # else it was full before
            self._wake()
            self._slices.leave()

    # Store events

    async def _store_events(self, cycle: Cycle) -> DeliveryError | None:
        """Sends the batch and reports the frames without rejects in this cycle. Returns the failure, if any."""
        if (batch := cycle.batch) is not None and (events := len(batch)):
            try:
                refused = await self._delivery.store(batch, cycle.deadline())
            except DeliveryError as failure:
                return failure
            self._metrics.events_stored.inc(events - len(refused))
            self.last_stored, self.has_stored, self.refused = self._clock(), True, None
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
        topic = self._topics.quarantine
        limit = topic.batch_bytes(self._batch_bytes)
        empty = partial(Batch, topic.name, self.where.partition % topic.partitions, limit)
        self._turn = None
        async for batch in batches(cycle.rejects, empty, limit, self._scheduler, self._slices):
            if cycle.rejects_in_doubt:
                self._metrics.events_republished.inc(batch.doubt())
            try:
                refused = await self._delivery.store(batch, cycle.deadline())
            except DeliveryError as failure:
                cycle.rejects_in_doubt = True  # batches before this one are stored, and all of them are built again
                return failure
            if refused:
                return DeliveryError("Kafka refuses a quarantine record", DeliveryPolicy.REFUSED)
        stored, cycle.rejects = cycle.rejects, []
        tell(stored, self._metrics, self._limited)
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
                await self._scheduler.reports.wait()
            del cycle.frames[frame]
            if frame.abandoned:
                continue
            if frame.exhausted:
                if frame.reserved:
                    frame.shrink(0)
                del self._pending[frame]
            frame.listener.stored(frame.ticket, frame.built, frame.exhausted)

    # Or give up

    async def _give_up(self, cycle: Cycle, error: DeliveryError) -> None:
        """Abandons the overdue frames of the cycle, and if a retry cannot help, all but those that are kept until stored."""
        now, refused = self._clock(), error.policy is not DeliveryPolicy.RETRY
        # events do not wait for rejects that quarantine refuses
        keeps = error.policy is DeliveryPolicy.CLOCK or cycle.batch is not None
        if refused and keeps:
            self.refused = PartitionRefusal.again(self.refused, now, error)
        for number, frame in enumerate(cycle.living()):
            if number % TOLD == 0:
                await self._scheduler.reports.wait()
            hopeless = refused and not (keeps and frame.kept is KeepUntil.STORED)
            if not frame.abandoned and (hopeless or now >= frame.deadline):
                self._abandon(frame, error)

    async def _keep(self, cycle: Cycle, error: DeliveryError) -> None:
        """Waits before refused records are sent again, as received now if their timestamps were refused. Later frames wait."""
        self._limited.warning("kept until Kafka takes it", partition=self.where.partition, problem=str(error))
        await asyncio.sleep(AGAIN)
        if error.policy is DeliveryPolicy.CLOCK:
            self._pending.renew(time.time_ns() // 1_000_000)
            if cycle.batch is not None:
                cycle.batch.restamp()

    def _abandon(self, frame: InFlightFrame, error: DeliveryError) -> None:
        """Abandons a frame. If it waited for memory, the next of its connection can continue."""
        frame.abandoned = True
        frame.shrink(0)
        self._queue.remove(frame)
        self._wake()
        del self._pending[frame]
        if not self._pending:
            self.idle.set()
        frame.listener.abandoned(frame.ticket, error)

    def _abandon_all(self) -> None:
        for frame in list(self._pending):
            self._abandon(frame, DeliveryError("its pump has ended", DeliveryPolicy.RETRY))  # by a bug

    # What is known of it

    def waiting(self) -> int:
        """Returns how many frames are not stored yet."""
        return len(self._pending)

    def oldest(self) -> float | None:
        """Returns when the longest-waiting frame was submitted."""
        return self._pending.oldest()

    def waiting_since(self) -> float | None:
        """Returns since when the pump waits for Kafka, also after all frames are abandoned, or frames wait for the pump."""
        return min((since for since in (self._queue.paused_since, self.oldest()) if since is not None), default=None)
