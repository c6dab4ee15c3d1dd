"""The work of a running job besides landing: it reports its progress, commits offsets to Kafka, and maintains the tables."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

from headrace_common.operations.log import Log

from headrace_lake.configuration.settings import LakeProcessSettings
from headrace_lake.kafka.source import Brokers
from headrace_lake.kafka.start import EndOffsets
from headrace_lake.landing.landing import BatchResult
from headrace_lake.tables.on_spark import Tables
from headrace_lake.upkeep.clocks import ClockGuard
from headrace_lake.upkeep.group_reporter import GroupReporter
from headrace_lake.upkeep.maintenance import Maintenance
from headrace_lake.upkeep.operations import LakeHealth

_LOW_PRIORITY: Final = 10  # nice(2)


class Upkeep(AbstractContextManager["Upkeep"]):
    """The upkeep of one run. `landed_before`: how far the tables are."""

    def __init__(
        self,
        tables: Tables,
        settings: LakeProcessSettings,
        *,
        epoch: int,
        landed_before: EndOffsets,
        brokers: Brokers,
        health: LakeHealth,
        log: Log,
        stopping: Callable[[], bool],
    ) -> None:
        self._health = health
        self._log = log
        self._group_reporter = GroupReporter(brokers, group=settings.lake.group, metrics=health.metrics, log=log)
        self._group_reporter.landed(landed_before)
        self._clocks = ClockGuard(health.metrics, log)
        self._maintenance = Maintenance(
            tables, settings.lake, epoch=epoch, metrics=health.metrics, log=log,
            stopping=stopping, agree=self._clocks.agree,
        )  # fmt: skip
        self._beside = ThreadPoolExecutor(1, "maintenance", _give_way)
        self._running: Future[None] | None = None

    def __exit__(self, *_: object) -> None:
        """Waits for the current piece of maintenance."""
        self._beside.shutdown()
        self._group_reporter.report()

    def landed(self, result: BatchResult) -> None:
        """Learns, in Spark's thread, that a batch has landed."""
        self._health.landed(result)
        self._clocks.landed(result.landed.newest)
        self._group_reporter.landed(result.ends)
        self._log.info(
            "landed",
            batch=result.batch,
            records=result.landed.records.total(),
            events=result.landed.events,
            quarantined=sum(result.landed.reasons.values()),
            duplicates=len(result.landed.left_out),
            seconds=round(result.seconds, 2),
        )

    def run_due(self) -> None:
        """Does the tasks that are due; the main loop calls it often. May block for some seconds. Raises the errors of
        `Maintenance.run_due`.
        """
        self._group_reporter.run_due()
        if self._running is not None and self._running.done():
            self._running.result()
            self._running = None
        if self._running is None:
            self._running = self._beside.submit(self._maintenance.run_due)

    def finish(self) -> None:
        """Does the due maintenance once more, and waits for it. Raises the errors of `run_due`."""
        running, self._running = self._running, None
        if running is not None:
            running.result()
        self._beside.submit(partial(self._maintenance.run_due, at_once=True)).result()


def _give_way() -> None:
    """Lowers the priority of this thread, where the system has one for each thread: landing goes first."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOW_PRIORITY)
