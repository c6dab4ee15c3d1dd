"""Health and metrics of the landing job, served from a thread of their own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from typing import Final

from headrace_common.errors import ConfigError
from headrace_common.metrics import LakeMetrics
from headrace_common.ops import OpsServer
from headrace_common.settings import OpsSettings

from headrace_lake.landing import Landed
from headrace_lake.landing_events import Remembered

STALLED: Final = 120.0
"""Seconds without a turn of the main loop of a ready job after which the process should be restarted."""

STARTING: Final = 1800.0
"""The same before it is ready: a JVM starts, ids are read back from the table. Restarted sooner it would never get there."""

_SHARES: Final = (0.5, 0.95)
_OTHER: Final = "other"  # reasons that nobody counted


class LakeHealth:
    """What the job says of itself. Written by the main thread and by Spark's, read by the server's."""

    def __init__(self, metrics: LakeMetrics) -> None:
        self.metrics = metrics
        """Where it counts."""
        self._turned = time.monotonic()
        self._waits_for = "Spark is starting"
        self._rows: dict[str, str] = {}
        self._forgotten = 0
        self._notes: list[str] = []

    def turn(self) -> None:
        """The main loop lives."""
        self._turned = time.monotonic()

    def waits(self, reason: str) -> None:
        """Not ready, because of `reason`; empty: ready."""
        self._waits_for = reason

    def tell(self, **rows: object) -> None:
        """Rows for the status page."""
        self._rows |= {name: str(value) for name, value in rows.items()}

    def landed(self, result: Landed) -> None:
        """Counts a batch."""
        metrics = self.metrics
        metrics.batches_landed.inc()
        metrics.records_landed.inc(result.records)
        metrics.events_landed.inc(result.events)
        for counter, counts in (
            (metrics.duplicates, result.duplicates),
            (metrics.records_skipped, result.skipped),
            (
                metrics.records_quarantined,
                {_OTHER: result.quarantined - sum(result.reasons.values()), **result.reasons},
            ),
        ):
            for label, count in counts.items():
                if count:
                    counter.labels(label).inc(count)
        for start, end, count in result.ages.spans:
            if count:
                metrics.freshness.observe((start + end) / 2, count)
        for share in _SHARES:
            metrics.freshness_quantile.labels(str(share)).set(result.ages.quantile(share))
        metrics.records_looked_up.inc(result.looked_up)
        metrics.batch_seconds.observe(result.seconds)
        metrics.last_landed.set_to_current_time()
        if result.remembered is not None:
            self._remembers(result.remembered)
        self.tell(batch=result.batch, records=result.records, seconds=f"{result.seconds:.1f}")

    def _remembers(self, remembered: Remembered) -> None:
        metrics, state = self.metrics, remembered.state
        metrics.remembered_ids.set(state.ids)
        metrics.remembered_bytes.set(state.bytes)
        metrics.remembered_seconds.set(remembered.span)
        metrics.forgotten_ids.inc(max(0, state.forgotten - self._forgotten))
        self._forgotten = state.forgotten
        self._notes = (
            [f"resends are told within {remembered.span:.0f} s only: LAKE__DEDUP_MEMORY is used up"]
            if remembered.short
            else []
        )

    def lag(self, behind: Mapping[tuple[str, int], int]) -> None:
        """How many offsets each partition is behind."""
        for (topic, partition), offsets in behind.items():
            self.metrics.lag_offsets.labels(topic, str(partition)).set(offsets)

    def live_problems(self) -> list[str]:
        """As `headrace_common.ops.Health`."""
        silent = time.monotonic() - self._turned
        allowed = STARTING if self._waits_for else STALLED
        return [f"the main loop has not turned for {silent:.0f} s"] if silent > allowed else []

    def ready_problems(self) -> list[str]:
        """As `headrace_common.ops.Health`."""
        return [self._waits_for] if self._waits_for else []

    def notes(self) -> list[str]:
        """As `headrace_common.ops.Health`."""
        return self._notes

    def status(self) -> dict[str, str]:
        """As `headrace_common.ops.Health`."""
        return dict(self._rows)

    def collect(self) -> None:
        """As `headrace_common.ops.Health`: every gauge is up to date already."""


class OpsThread:
    """Runs the `OpsServer` beside a main thread that blocks."""

    def __init__(self, settings: OpsSettings, health: LakeHealth, metrics: LakeMetrics) -> None:
        self._server = OpsServer(settings, "lake", health, metrics)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ops", daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.port

    def start(self) -> None:
        """Listens. Raises `ConfigError` when the address is taken."""
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result(10)
        except TimeoutError as error:
            raise ConfigError("the server for health and metrics does not start") from error

    def stop(self) -> None:
        """Stops listening."""
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
