"""One pump for each partition of the events topic: it fills a cycle, delivers it and reports what is durable.

There is no linger time: frames that arrive during one cycle form the next, and a cycle is filled on only while its broker could
not be sent it. Every acknowledgement goes through `Pump._report`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from headrace_common.fairness.budget import Growth
from headrace_common.fairness.scheduler import FairScheduler
from headrace_common.kafka.client import Topic
from headrace_common.kafka.producer import ProducerSource
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy
from headrace_common.operations.log import Log, RateLimited
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.publishing.batch import Batch
from headrace_common.publishing.delivery import OVERDUE, Delivery
from headrace_common.publishing.filler import CycleFiller
from headrace_common.publishing.in_flight_frame import NO_DEADLINE, InFlightFrame
from headrace_common.publishing.produce_cycle import ProduceCycle
from headrace_common.record.contract import Reason

BEYOND: Final = (Reason.OVERSIZED, Reason.TOO_MANY_EVENTS, Reason.TOO_DEEP, Reason.INFLATED_LIMIT)
"""Reasons that name a limit: what is sound went to quarantine, the client was told nothing, and a higher limit would take it."""


class Pump:
    """Carries frames to one partition. `run` ends only by cancellation. Any other end is a bug and stops the service."""

    def __init__(
        self,
        partition: int,
        topics: tuple[str, str],
        source: ProducerSource,
        delivery: Delivery,
        scheduler: FairScheduler,
        growth: Growth,
        metrics: ReceiverMetrics,
        log: Log,
    ) -> None:
        self.partition = partition
        self._events, self._quarantine = topics
        self._source = source
        self._delivery = delivery
        self._metrics = metrics
        self._pending: OrderedDict[InFlightFrame, None] = OrderedDict()  # neither stored nor abandoned
        self._filler = CycleFiller(scheduler, growth, log, lambda: source.turn(self._events, partition))
        self._limited = RateLimited(log, burst=1, interval=60.0)
        self.idle = asyncio.Event()  # no frame waits or is in flight
        self.idle.set()
        self._clock: Callable[[], float] = asyncio.get_running_loop().time
        self.last_stored = self._clock()
        self.has_stored = False
        self.clock_refused: float | None = None
        self._delivering_since: float | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self.ended = False
        """A bug has ended it: what is submitted now must be abandoned."""

    @property
    def waiting(self) -> int:
        """Frames that are not stored yet."""
        return len(self._pending)

    def oldest(self) -> float | None:
        """When the longest-waiting frame was submitted."""
        return next(iter(self._pending)).submitted if self._pending else None

    def waiting_since(self) -> float | None:
        """Since when it waits for Kafka or frames wait for it. Kafka's answer is awaited also after all frames are abandoned."""
        return min((since for since in (self._delivering_since, self.oldest()) if since is not None), default=None)

    def submit(self, frame: InFlightFrame) -> None:
        """Takes a frame. Its listener learns the outcome later, never within this call."""
        self._pending[frame] = None
        self._filler.add(frame)
        self.idle.clear()
        if self._expiry is None or frame.deadline < self._expiry.when():
            self._watch(frame.deadline)

    async def run(self) -> None:
        """Runs until it is cancelled."""
        try:
            while True:
                if not self._pending:
                    self.idle.set()
                await self._filler.has_work()
                limit = self._source.batch_bytes
                cycle = ProduceCycle(Batch(self._events, self.partition, limit), limit)
                await self._filler.fill(cycle)
                self._delivering_since = self._clock()
                await self._deliver(cycle)
                self._delivering_since = None
        finally:
            self._filler.close()
            if self._expiry is not None:
                self._expiry.cancel()

    # Deadlines

    def _watch(self, deadline: float) -> None:
        if self._expiry is not None:
            if self._expiry.when() <= deadline:
                return
            self._expiry.cancel()
        if deadline != NO_DEADLINE:
            self._expiry = asyncio.get_running_loop().call_at(deadline, self._expire)

    def _expire(self) -> None:
        """Abandons the frames whose deadline has passed, wherever they are. Their batch goes on: others wait in it, and
        nobody else's work is touched.
        """
        self._expiry, now = None, self._clock()
        for frame in [frame for frame in self._pending if frame.deadline <= now]:
            self._abandon(frame, DeliveryError(OVERDUE, DeliveryPolicy.RETRY))
        self._watch(min((frame.deadline for frame in self._pending), default=NO_DEADLINE))

    # From a batch to the report

    async def _deliver(self, cycle: ProduceCycle) -> None:
        """Returns when each frame of the cycle is abandoned, or its parts in this cycle are stored."""
        while cycle.living():
            cycle.drop_dead()
            failure = await self._store_events(cycle) or await self._store_rejects(cycle)
            if failure is None:
                return
            self._give_up(cycle, failure)

    async def _store_events(self, cycle: ProduceCycle) -> DeliveryError | None:
        """Sends the batch and reports the frames without rejects in this cycle. Returns the failure, if any."""
        events = len(cycle.batch)
        if events:
            outcome = await self._delivery.store(cycle.batch, cycle.deadline(), self._max_event_bytes)
            if outcome.failure is not None:
                return outcome.failure
            self._metrics.events_stored.inc(events - len(outcome.refused))
            self._stored()
            cycle.events_stored(outcome.refused)
        self._report(cycle)
        return None

    async def _store_rejects(self, cycle: ProduceCycle) -> DeliveryError | None:
        """Sends the rejects to the quarantine topic and reports their frames. Returns the failure, if any."""
        if not cycle.rejects:
            return None
        topic = self._quarantine_topic()
        limit = min(self._source.batch_bytes, topic.max_message_bytes * 3 // 4)
        partition = self.partition % topic.partitions
        async for batch in self._filler.quarantine(cycle.rejects, lambda: Batch(topic.name, partition, limit), limit):
            if cycle.rejects_in_doubt:
                self._metrics.events_republished.inc(batch.doubt())
            outcome = await self._delivery.store(batch, cycle.deadline(), self._max_quarantine_bytes)
            if outcome.failure is not None:
                cycle.rejects_in_doubt = True  # batches before this one are stored, and all of them are built again
                return outcome.failure
            if outcome.refused:
                return DeliveryError("Kafka refuses a quarantine record", DeliveryPolicy.REFUSED)
        for reject in cycle.rejects_stored():
            self._metrics.events_quarantined.labels(reject.reason.value).inc()
            if reject.reason in BEYOND:
                self._limited.warning(
                    "beyond a limit", reason=reject.reason.value, detail=reject.detail, source=reject.source
                )
        self._report(cycle)
        return None

    def _report(self, cycle: ProduceCycle) -> None:
        """The only place that reports frames as stored."""
        for frame in cycle.take_stored():
            if frame.exhausted:
                if frame.reserved:
                    frame.shrink(0)
                del self._pending[frame]
            frame.listener.stored(frame.frame.ticket, frame.built, frame.exhausted)

    def _give_up(self, cycle: ProduceCycle, error: DeliveryError) -> None:
        """Abandons all frames of the cycle if a retry cannot help, otherwise those past their deadline."""
        now = self._clock()
        if error.policy is DeliveryPolicy.CLOCK:
            self.clock_refused = now
        for frame in cycle.living():
            if error.policy is not DeliveryPolicy.RETRY or now >= frame.deadline:
                self._abandon(frame, error)

    def _abandon(self, frame: InFlightFrame, error: DeliveryError) -> None:
        frame.dead = True
        frame.shrink(0)
        self._filler.remove(frame)
        del self._pending[frame]
        if not self._pending:
            self.idle.set()
        frame.listener.abandoned(frame.frame.ticket, error)

    def abandon_all(self, error: DeliveryError) -> None:
        """Abandons every frame, because the pump no longer runs."""
        for frame in list(self._pending):
            self._abandon(frame, error)

    def _stored(self) -> None:
        self.last_stored = self._clock()
        self.has_stored = True
        self.clock_refused = None

    def _quarantine_topic(self) -> Topic:
        assert self._source.quarantine is not None
        return self._source.quarantine

    def _max_event_bytes(self) -> int:
        assert self._source.events is not None
        return self._source.events.max_message_bytes

    def _max_quarantine_bytes(self) -> int:
        return self._quarantine_topic().max_message_bytes
