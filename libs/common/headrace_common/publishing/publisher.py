"""Publishing: gives each connection and each ordering key the pump of a partition, and hides Kafka from them."""

from __future__ import annotations

import asyncio
import random
from typing import Final
from zlib import crc32

from headrace_common.fairness.scheduler import Scheduler
from headrace_common.kafka.producer import FIRST_PAUSE
from headrace_common.operations.certificates import expiry
from headrace_common.operations.errors import ConfigError, DeliveryError
from headrace_common.operations.log import Log
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import KafkaSettings
from headrace_common.operations.tasks import Tasks
from headrace_common.publishing.delivery import Delivery
from headrace_common.publishing.in_flight import Growth
from headrace_common.publishing.pump import Pump

QUIET_TIME: Final = 10.0
"""Seconds without a stored batch, while frames wait or are refused, after which a line says so, and `kafka_up` is 0."""

LOOK: Final = 1.0
"""Seconds between two looks for that, and for frames whose deadline has passed."""

STUCK_TIME: Final = 30.0
"""Seconds without a stored batch, while frames wait or are refused, after which readiness turns red."""

REFUSED_TIME: Final = 30.0
"""Seconds after the last refused frame from which on readiness is green again: clients may try again."""

MOST_PAUSE: Final = 5.0
"""Seconds between two tries to reach Kafka at the start, at most. The pause begins with `FIRST_PAUSE` and doubles each time."""

FLUSH_LOOK: Final = 0.02
"""Seconds between two looks whether all frames are stored."""

CHOICE: Final = 32
"""Partitions that are looked at for a new connection: a topic may have thousands, and as many connections may come at once."""


class Publisher:
    """The pumps of all partitions. Make it inside a running event loop."""

    def __init__(
        self,
        settings: KafkaSettings,
        scheduler: Scheduler,
        growth: Growth,
        metrics: ReceiverMetrics,
        log: Log,
        tasks: Tasks,
    ) -> None:
        self._settings = settings
        self._scheduler = scheduler
        self._growth = growth
        self._metrics = metrics
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._delivery = Delivery(settings, metrics, log)
        self._producer = self._delivery.producer
        self._problem: str | None = "Kafka has not answered yet"  # until it has answered
        self._pumps: list[Pump] = []
        self._tasks = tasks
        self._running: list[asyncio.Task[None]] = []
        self._rotation = 0
        self._silent_since = self._loop.time()

    async def start(self) -> None:
        """Waits, without limit, until Kafka answers and the topics exist."""
        await self._first_answer()
        for partition in range(self._delivery.events.partitions):
            pump = Pump(partition, self._delivery, self._scheduler, self._growth)
            self._pumps.append(pump)
            self._running.append(self._tasks.start(pump.run(), f"pump {partition}"))
        # With many replicas of few connections each, the first partition would get one from each of them.
        self._rotation = random.randrange(len(self._pumps))  # noqa: S311  (no secret)
        self._running.append(self._tasks.start(self._watch(), "deadlines"))

    async def _first_answer(self) -> None:
        """Waits until Kafka answers and the topics exist. Raises `ConfigError`."""
        pause = FIRST_PAUSE
        while self._problem is not None:
            try:
                await self._delivery.refresh()
                await self._producer.open((self._settings.events_topic, self._settings.quarantine_topic))
                self._log.info("kafka answers", bootstrap=self._settings.bootstrap_servers)
                self._problem = None
            except ConfigError:
                raise
            except Exception as error:  # a bug of Kafka's client, say: it may not be met again
                problem = str(error) if isinstance(error, DeliveryError) else f"{type(error).__name__}: {error}"
                if problem != self._problem:
                    self._log.warning("kafka is not usable", problem=problem)
                self._problem = problem
                await asyncio.sleep(pause)
                pause = min(2 * pause, MOST_PAUSE)

    async def _watch(self) -> None:
        """Abandons the frames whose deadline has passed, and looks for how long Kafka has stored nothing while frames waited or
        were refused. Logs when that is long, and when Kafka stores again.
        """
        last, told = self._loop.time(), False
        while True:
            await asyncio.sleep(LOOK)
            for pump in self._pumps:
                await pump.expire()
            now = self._loop.time()
            stores = any(pump.last_stored >= last for pump in self._pumps)
            if stores or not any(pump.waiting() or pump.refused_at > now - REFUSED_TIME for pump in self._pumps):
                self._silent_since = now
            if stores and told:
                told = False
                self._log.info("kafka stores again")
            elif not told and self._silent() >= QUIET_TIME:
                told = True
                waits = sum(pump.waiting() for pump in self._pumps)
                self._log.warning(
                    "kafka stores nothing",
                    seconds=round(self._silent()),
                    frames_that_wait=waits,
                    problem=self._producer.trouble,
                )
            last = now

    def _silent(self) -> float:
        return self._loop.time() - self._silent_since

    def choose(self) -> Pump:
        """Returns the pump of a new connection's partition: of the next `CHOICE` in turn the first that has a leader, as far as
        known; the first of all if none has.
        """
        self._rotation += 1
        near = [
            self._pumps[(self._rotation + turn) % len(self._pumps)] for turn in range(min(CHOICE, len(self._pumps)))
        ]
        return next((pump for pump in near if self._producer.leader(pump.where) is not None), near[0])

    def of(self, ordering_key: bytes) -> Pump:
        """Returns the pump of the partition that an ordering key names, by its CRC-32: records have no key, so no other client
        has to agree.
        """
        return self._pumps[crc32(ordering_key) % len(self._pumps)]

    async def flush(self) -> None:
        """Waits until every frame is stored or abandoned. Nothing may be submitted meanwhile."""
        while any(pump.waiting() for pump in self._pumps):  # noqa: ASYNC110  (an event would cost each frame a call)
            await asyncio.sleep(FLUSH_LOOK)

    async def close(self) -> None:
        """Stops the pumps. Frames that still wait are neither stored nor acknowledged. Takes a few seconds at most."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        await self._producer.close()

    def ready_problems(self) -> list[str]:
        """Returns why Kafka can take nothing now; independent of any single frame."""
        if not self._pumps:
            return [self._problem or "starting"]
        silent = self._silent()
        if silent < STUCK_TIME:
            return []
        return [f"Kafka has stored nothing for {silent:.0f} s while frames wait; {self._producer.trouble}"]

    def oldest(self) -> float | None:
        """Returns when the longest-waiting frame was submitted (event loop time)."""
        return min((since for pump in self._pumps if (since := pump.oldest()) is not None), default=None)

    def collect(self) -> None:
        """Updates the gauges. Reads the file of the certificate for Kafka, if there is one."""
        certificate = self._settings.certificate
        self._metrics.kafka_certificate_expiry.set(0.0 if certificate is None else expiry(certificate))
        oldest = self.oldest()
        self._metrics.oldest_pending_seconds.set(0 if oldest is None else self._loop.time() - oldest)
        self._metrics.frames_pending.set(sum(pump.waiting() for pump in self._pumps))
        usable = bool(self._pumps) and self._silent() < QUIET_TIME
        self._metrics.kafka_up.set(1 if usable else 0)
