"""Health and metrics of the landing job, served by their own thread."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Final

from headrace_common.operations.errors import ConfigError
from headrace_common.operations.health import Health, OpsServer
from headrace_common.operations.metrics import Catalogue
from headrace_common.operations.settings import OpsSettings
from typing_extensions import override

from headrace_lake.landing.landing import BatchResult
from headrace_lake.landing.plan import OTHER
from headrace_lake.upkeep.metrics import LakeMetrics

STALLED: Final = 120.0
"""Seconds without a heartbeat of the main loop after which a ready job should be restarted."""

STARTING: Final = 1800.0
"""The same seconds before the job is ready: it starts a JVM and reads ids. Restarted earlier, it might never start."""

PROTOCOLS: Final = ("courier", "forward", "logjam", "lumberjack", "otlp", "relp", "segment", "syslog")
"""Protocols with a label of their own in metrics; every other lands as well, and is counted as `other`."""


class LakeHealth(Health):
    """The job's health. The main thread and Spark's threads write it, the server's thread reads it."""

    def __init__(self, metrics: LakeMetrics) -> None:
        self.metrics = metrics
        """The metrics that it updates."""
        self._last_heartbeat = time.monotonic()
        self._waiting_for = "Spark is starting"

    def heartbeat(self) -> None:
        """Notes that the main loop still runs."""
        self._last_heartbeat = time.monotonic()

    def set_waiting(self, reason: str) -> None:
        """Says that the job is not ready, because of `reason`; empty: it is ready."""
        self._waiting_for = reason

    def landed(self, result: BatchResult) -> None:
        """Adds a batch to the metrics."""
        metrics, landed = self.metrics, result.landed
        metrics.batches_landed.inc()
        metrics.records_landed.inc(landed.records.total())
        metrics.events_landed.inc(landed.events)
        for each in landed.left_out:
            metrics.duplicates.labels(each.protocol if each.protocol in PROTOCOLS else OTHER).inc()
        for reason, count in landed.reasons.items():
            metrics.records_quarantined.labels(reason).inc(count)
        for age, count in landed.ages.items():
            metrics.freshness.observe(age + result.seconds, count)
        metrics.batch_seconds.observe(result.seconds)
        metrics.last_landed.set_to_current_time()
        if landed.index is not None:
            metrics.remembered_ids.set(landed.index.ids)
            metrics.remembered_bytes.set(landed.index.bytes)
            metrics.remembered_seconds.set(landed.span)

    @override
    def live_problems(self) -> list[str]:
        silent = time.monotonic() - self._last_heartbeat
        allowed = STARTING if self._waiting_for else STALLED
        return [f"the main loop gave no heartbeat for {silent:.0f} s"] if silent > allowed else []

    @override
    def ready_problems(self) -> list[str]:
        return [self._waiting_for] if self._waiting_for else []


class OpsThread:
    """Runs the `OpsServer` in a thread, because the main thread blocks."""

    def __init__(self, settings: OpsSettings, health: Health, metrics: Catalogue) -> None:
        self._server = OpsServer(settings, health, metrics)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ops", daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.port

    def start(self) -> None:
        """Listens. Raises `ConfigError` if the address is taken."""
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result(10)
        except TimeoutError as error:
            raise ConfigError("the server for health and metrics does not start") from error
