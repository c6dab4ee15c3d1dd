"""Compaction, retention, vacuum and clean-up of the log: beside landing, piece by piece, within a time budget.

A piece never holds back a batch: Delta lets both commit, and one thread of a low priority runs them. A piece that sets a property
of a table makes a batch commit once more (`fence.unless_altered`).

No commit of maintenance carries our transaction identifier, and none changes a row: exactly once does not depend on them.
Before each piece the job reads the tables' logs, and stops if another job has taken over. A superseded job that has not
noticed yet does no harm: Delta rejects a merge that overlaps another, and days that are due may be dropped by any job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Final

from headrace_common.operations.log import Log as Logger
from py4j.protocol import Py4JError
from pyarrow import ArrowException
from pyspark.errors import PySparkException

from headrace_lake.configuration.settings import LakeSettings
from headrace_lake.spark.causes import root_cause
from headrace_lake.tables.fence import claim_of, not_past
from headrace_lake.tables.layout import BATCHES, GAPS, SCHEMAS
from headrace_lake.tables.on_spark import Tables
from headrace_lake.tables.transaction_log import LiveFiles, day_of
from headrace_lake.upkeep import retention
from headrace_lake.upkeep.merging import choice, compaction
from headrace_lake.upkeep.metrics import LakeMetrics

_LOOK: Final = 5.0  # seconds between two looks at the tables' logs
_CLEAN_EVERY: Final = 500  # commits of a table between two clean-ups of its log
_RETRY: Final = 600.0  # seconds until a failed task is tried again

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


def rest_after(took: float, share: float) -> float:
    """Returns how many seconds no piece begins after one that `took` some, if pieces may take a `share` of the time."""
    return took / share - took


class Maintenance:
    """Maintains the tables in `lake` for the job that holds `epoch`. Calls `stopping` between pieces."""

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
        self._rests_until = 0.0  # monotonic: so that pieces take no more than their share of the time
        self._looked = 0.0
        self._not_before: dict[tuple[str, str], float] = {}  # (task, table) -> monotonic time
        self._tables = {name: LiveFiles(tables.storage, tables.path(name)) for name in SCHEMAS}
        self._cleaned: dict[str, int] = {}  # table -> how many times `_CLEAN_EVERY` commits its log had then
        for name, value in _SESSION.items():
            tables.spark.conf.set(name, value)

    def run_due(self, *, at_once: bool = False) -> None:
        """Does the pieces that are due, with rests between them; unless `at_once`, only some seconds after the last time.

        Blocks for some pieces. For one thread at a time.

        Raises `SupersededError` like `_look`. Any other failure is logged, counted, and tried again later.
        """
        if time.monotonic() - self._looked < _LOOK and not at_once:
            return
        try:
            self._look()
            while self._goes_on() and (piece := self._next()) is not None:
                self._do(*piece)
                self._look()
        except (Py4JError, PySparkException) as error:
            self._log.warning("table logs unreadable", reason=root_cause(error))
        finally:
            self._looked = time.monotonic()

    def _goes_on(self) -> bool:
        return not self._stopping() and bool(self._settings.maintenance_share) and time.monotonic() >= self._rests_until

    def _look(self) -> None:
        """Reads the logs. Raises `SupersededError` if another job has taken over."""
        for name, table in self._tables.items():
            not_past(table.latest(), claim_of(self._epoch + 1) - 1)
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
            dropped = [name for name in self._tables if name not in (BATCHES, GAPS)]
            newest = max((day_of(file) for name in dropped for file in self._tables[name].files), default="")
            first = retention.first_kept(settings.retention_days, now, newest)
            for name in dropped:
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
                yield "vacuum", name, partial(retention.vacuum, self._lake, name, table, settings.vacuum_age)

    def _clean_log(self, name: str, times: int) -> None:
        self._lake.clean_log(name)
        self._cleaned[name] = times

    def _merge(self, piece: choice.Piece) -> None:
        table, path = self._tables[piece.table], self._lake.path(piece.table)
        compaction.merge(self._lake.spark, path, piece, table)

    def _may(self, task: str, table: str) -> bool:
        return time.monotonic() >= self._not_before.get((task, table), 0.0)

    def _do(self, task: str, name: str, act: Callable[[], object]) -> None:
        began = time.monotonic()
        self._log.debug("maintenance begins", task=task, table=name)
        try:
            act()
            self._tables[name].latest()
        except _FAILURES as error:
            self._not_before[task, name] = time.monotonic() + _RETRY
            self._metrics.maintenance_failures.labels(task).inc()
            self._log.warning("maintenance failed", task=task, table=name, reason=root_cause(error))
            return
        finally:
            took = time.monotonic() - began
            self._rests_until = time.monotonic() + rest_after(took, self._settings.maintenance_share)
            self._metrics.maintenance_seconds.labels(task).inc(took)
        self._metrics.maintenance_runs.labels(task).inc()
        self._log.info("maintained", task=task, table=name, seconds=round(took, 2))
