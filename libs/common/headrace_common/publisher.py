"""Publishing: frames go to the pump of their partition and their receipts hear of it. All of Kafka is behind this."""

from __future__ import annotations

import asyncio
from typing import Final

from headrace_common.budget import Growth
from headrace_common.consignment import Consignment, Receipt
from headrace_common.delivery import Delivery
from headrace_common.log import Log
from headrace_common.metrics import ReceiverMetrics
from headrace_common.producer import ProducerSource
from headrace_common.pump import Pump
from headrace_common.session import Frame
from headrace_common.settings import KafkaSettings
from headrace_common.turns import Turns

STUCK_TIME: Final = 30.0
"""Seconds without any stored batch, while something waits, after which no client should come."""

CLOCK_TIME: Final = 30.0
"""Seconds that readiness stays red after Kafka refused our timestamps; then clients may try again."""

OVERDUE_TIME: Final = 5.0
"""A partition whose oldest frame has waited so long gets no new connections while there are others."""


class Publisher:
    """Frames in, receipts out. Made inside a running event loop."""

    def __init__(
        self, settings: KafkaSettings, turns: Turns, growth: Growth, metrics: ReceiverMetrics, log: Log
    ) -> None:
        self._settings = settings
        self._turns = turns
        self._growth = growth
        self._metrics = metrics
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._source = ProducerSource(settings, metrics, log)
        self._delivery = Delivery(self._source, metrics)
        self._pumps: list[Pump] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._connections: list[int] = []  # by partition
        self._turn = 0

    async def start(self) -> None:
        """Waits, if need be for ever, until Kafka answers and the topics exist."""
        await self._source.current()
        assert self._source.events is not None
        for partition in range(self._source.events.partitions):
            pump = Pump(
                partition,
                (self._settings.events_topic, self._settings.quarantine_topic),
                self._source,
                self._delivery,
                self._turns,
                self._growth,
                self._metrics,
                self._log,
            )
            self._pumps.append(pump)
            self._tasks.append(asyncio.create_task(pump.run(), name=f"pump {partition}"))
        self._connections = [0] * len(self._pumps)

    def enter(self) -> int:
        """A partition for a new connection: one with a leader and nothing overdue, with the fewest connections."""
        now = self._loop.time()
        self._turn += 1

        def cost(partition: int) -> tuple[bool, int, int]:
            oldest = self._pumps[partition].oldest()
            bad = (oldest is not None and now - oldest > OVERDUE_TIME) or not self._source.has_leader(partition)
            return bad, self._connections[partition], (partition - self._turn) % len(self._pumps)

        chosen = min(range(len(self._pumps)), key=cost)
        self._connections[chosen] += 1
        return chosen

    def leave(self, partition: int) -> None:
        """A connection that `enter`ed is gone."""
        self._connections[partition] -= 1

    def submit(self, frame: Frame, receipt: Receipt, partition: int) -> None:
        """Takes a frame; `receipt` hears later what became of it, never from within this call."""
        if self._settings.spread:
            self._turn += 1
            partition = self._turn % len(self._pumps)
        now = self._loop.time()
        self._pumps[partition].submit(Consignment(frame, receipt, now, now + self._settings.ack_deadline))

    async def flush(self) -> None:
        """Waits until nothing waits for Kafka any more (stored or abandoned), when no more is submitted."""
        for pump in self._pumps:
            await pump.idle.wait()

    async def close(self) -> None:
        """Ends the pumps; what still waits is neither stored nor acknowledged. Bounded to some seconds."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._source.close()

    def live_problems(self) -> list[str]:
        """Pumps that cannot go on."""
        return [f"{task.get_name()} has ended: {_cause(task)}" for task in self._tasks if task.done()]

    def ready_problems(self) -> list[str]:
        """Why Kafka cannot take anything now; independent of any single frame."""
        if not self._pumps:
            return [self._source.problem or "starting"]
        now = self._loop.time()
        refused = [pump.clock_refused for pump in self._pumps if pump.clock_refused is not None]
        if refused and now - max(refused) < CLOCK_TIME:
            return ["clock: Kafka refuses our timestamps, this machine's time is wrong"]
        oldest = self.oldest()
        if oldest is None:
            return []
        silent = now - max(oldest, *(pump.last_stored for pump in self._pumps))
        if silent < STUCK_TIME:
            return []
        return [f"Kafka has stored nothing for {silent:.0f} s while frames wait; {self._source.problem or 'no answer'}"]

    def oldest(self) -> float | None:
        """When the frame that waits longest was submitted (event loop time)."""
        return min((since for pump in self._pumps if (since := pump.oldest()) is not None), default=None)

    def collect(self) -> None:
        """Brings the gauges up to date."""
        oldest = self.oldest()
        self._metrics.oldest_pending_seconds.set(0 if oldest is None else self._loop.time() - oldest)
        self._metrics.frames_pending.set(sum(pump.waiting for pump in self._pumps))


def _cause(task: asyncio.Task[None]) -> str:
    if task.cancelled():
        return "cancelled"
    return repr(task.exception())
