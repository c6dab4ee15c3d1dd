"""Compaction, retention, vacuum and clean-up of the log: beside landing, piece by piece, within a time budget.

A piece never holds back a batch: Delta lets both commit, and one thread of a low priority runs them. A piece that sets a property
of a table makes a batch commit once more (`altered`).

No commit of maintenance carries our transaction identifier, and none changes a row: exactly once does not depend on them.
Before each piece the job reads the tables' logs, and stops if another job has taken over. A superseded job that has not
noticed yet does no harm: Delta rejects a merge that overlaps another, and days that are due may be dropped by any job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Final

from headrace_common.operations.log import Log as Logger
from py4j.protocol import Py4JError
from pyarrow import ArrowException
from pyspark.errors import PySparkException

from headrace_lake.configuration.settings import LakeSettings
from headrace_lake.spark.causes import root_cause
from headrace_lake.spark.halt import SupersededError
from headrace_lake.tables.fence import epoch_of
from headrace_lake.tables.layout import BATCHES, GAPS, SCHEMAS
from headrace_lake.tables.on_spark import Tables
from headrace_lake.tables.transaction_log import LiveFiles, day_of
from headrace_lake.upkeep import retention
from headrace_lake.upkeep.merging import choice, compaction
from headrace_lake.upkeep.merging.parquet_merge import InterruptedMergeError
from headrace_lake.upkeep.metrics import LakeMetrics

_AT_ONCE: Final = 3.0  # seconds that a run has at its beginning, so that a short one does something too
_SAVED: Final = 30.0  # most unused seconds that are saved for later
_LOOK: Final = 5.0  # seconds between two looks at the tables' logs
_CLEAN_EVERY: Final = 500  # commits of a table between two clean-ups of its log
_RETRY: Final = 60.0  # seconds until a failed task is tried again; doubles each time
_RETRY_MOST: Final = 3600.0

_SESSION: Final = {
    "spark.databricks.delta.vacuum.parallelDelete.enabled": "true",
    "spark.databricks.delta.vacuum.parallelDelete.parallelism": "4",
    "spark.databricks.delta.vacuum.logging.enabled": "true",  # for its count of files; safe with one writer
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",  # LAKE__VACUUM_AGE has its own bounds
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",  # tasks that list a table's files
}

MaintenancePiece = tuple[str, str, Callable[[], object]]  # task, table, act

_FAILURES: Final = (Py4JError, PySparkException, ArrowException, OSError, ValueError)
"""The errors with which a piece may fail: landing goes on."""


class TimeBudget:
    """A share of the time that passes; unused time is saved, up to a limit."""

    def __init__(self, share: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._share: Final = share
        self._clock = clock
        self._then = clock()
        self._saved = _AT_ONCE if share else 0.0

    def left(self) -> bool:
        """Returns whether a piece may begin."""
        now = self._clock()
        self._saved = min(_SAVED, self._saved + (now - self._then) * self._share)
        self._then = now
        return self._saved > 0

    def spend(self, seconds: float) -> None:
        """Notes that a piece took `seconds`. If that exceeds the saved time, the next piece waits."""
        self._saved -= seconds


class Maintenance:
    """Maintains the tables in `lake` for the job that holds `epoch`. Calls `stopping` between pieces and within some."""

    def __init__(
        self,
        tables: Tables,
        settings: LakeSettings,
        *,
        epoch: int,
        metrics: LakeMetrics,
        log: Logger,
        stopping: Callable[[], bool],
        agree: Callable[[], bool],
    ) -> None:
        """`agree`: whether the clocks agree. If not, nothing is deleted by time."""
        self._lake = tables
        self._agree = agree
        self._settings = settings
        self._epoch: Final = epoch
        self._metrics = metrics
        self._log = log
        self._stopping = stopping
        self._budget = TimeBudget(settings.maintenance_share)
        self._looked = 0.0
        self._not_before: dict[tuple[str, str], tuple[float, float]] = {}  # (task, table) -> (monotonic time, pause)
        self._tables = {name: LiveFiles(tables.storage, tables.path(name)) for name in SCHEMAS}
        self._cleaned: dict[str, int] = {}  # table -> how many times `_CLEAN_EVERY` commits its log had then
        for name, value in _SESSION.items():
            tables.spark.conf.set(name, value)

    def _dropped_by_day(self) -> list[str]:
        return [name for name in self._tables if name not in (BATCHES, GAPS)]

    def run_due(self, *, at_once: bool = False) -> None:
        """Does the pieces that are due, as long as the budget lasts; unless `at_once`, only some seconds after the last time.

        Blocks for some pieces. For one thread at a time.

        Raises `SupersededError` like `_look`. Any other failure is logged, counted, and tried again later.
        """
        if time.monotonic() - self._looked < _LOOK and not at_once:
            return
        try:
            self._look()
            while not self._stopping() and self._budget.left() and (piece := self._next()) is not None:
                self._do(*piece)
                self._look()
        except (Py4JError, PySparkException) as error:
            self._log.warning("table logs unreadable", reason=root_cause(error))
        finally:
            self._looked = time.monotonic()

    def _look(self) -> None:
        """Reads the logs. Raises `SupersededError` if another job has taken over."""
        for name, table in self._tables.items():
            latest = epoch_of(table.latest())
            if latest > self._epoch:
                raise SupersededError(
                    f"another job has taken over: it claimed epoch {latest} of the tables, this job holds epoch "
                    f"{self._epoch} and stops"
                )
            small = sum(choice.is_small(*each, self._settings.file_bytes) for each in table.files.items())
            self._metrics.files.labels(name).set(len(table.files))
            self._metrics.small_files.labels(name).set(small)
            self._metrics.table_bytes.labels(name).set(sum(file.size for file in table.files.values()))

    def _next(self) -> MaintenancePiece | None:
        return next((piece for piece in self._pieces() if self._may(*piece[:2])), None)

    def _pieces(self) -> Iterator[MaintenancePiece]:
        """Yields the pieces that are due, the most urgent first."""
        settings = self._settings
        now = time.time()
        agree = self._agree()
        if agree and settings.retention_days:
            newest = max(
                (day_of(file) for name in self._dropped_by_day() for file in self._tables[name].files), default=""
            )
            first = retention.first_kept(settings.retention_days, now, newest)
            for name in self._dropped_by_day():
                table = self._tables[name]
                if retention.due(table, first):
                    yield "retain", name, partial(retention.drop, self._lake, name, table, first)
        for name, table in self._tables.items():
            times = table.read_to // _CLEAN_EVERY
            if agree and times > self._cleaned.setdefault(name, times):
                yield "clean_log", name, partial(self._clean_log, name, times)
        today = datetime.fromtimestamp(now, UTC).date().isoformat()
        free = {name: table.files for name, table in self._tables.items() if self._may("compact", name)}
        piece = choice.choose(free, today=today, now=now, file_bytes=settings.file_bytes)
        if piece is not None:
            yield "compact", piece.table, partial(self._merge, piece)
        for name, table in self._tables.items():
            if agree and retention.vacuum_due(table, settings.vacuum_every):
                yield "vacuum", name, partial(retention.vacuum, self._lake, name, settings.vacuum_age, self._stopping)

    def _clean_log(self, name: str, times: int) -> None:
        self._lake.clean_log(name)
        self._cleaned[name] = times

    def _merge(self, piece: choice.Piece) -> None:
        table, path = self._tables[piece.table], self._lake.path(piece.table)
        with suppress(InterruptedMergeError):
            compaction.merge(self._lake.spark, path, piece, table, lambda: not self._stopping())

    def _may(self, task: str, table: str) -> bool:
        return time.monotonic() >= self._not_before.get((task, table), (0.0, 0.0))[0]

    def _do(self, task: str, name: str, act: Callable[[], object]) -> None:
        began = time.monotonic()
        self._log.debug("maintenance begins", task=task, table=name)
        try:
            act()
            self._tables[name].latest()
        except _FAILURES as error:
            _, pause = self._not_before.get((task, name), (0.0, _RETRY / 2))
            pause = min(_RETRY_MOST, pause * 2)
            self._not_before[task, name] = (time.monotonic() + pause, pause)
            self._metrics.maintenance_failures.labels(task).inc()
            self._log.warning("maintenance failed", task=task, table=name, retry=round(pause), reason=root_cause(error))
            return
        finally:
            took = time.monotonic() - began
            self._budget.spend(took)
            self._metrics.maintenance_seconds.labels(task).inc(took)
        self._not_before.pop((task, name), None)
        self._metrics.maintenance_runs.labels(task).inc()
        self._log.info("maintained", task=task, table=name, seconds=round(took, 2))
