"""What goes: whole days of rows, files that no version needs, commits that no reader needs. Never rows of a day that stays."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Final

from pyspark.sql import SparkSession

from headrace_lake.inventory import Inventory
from headrace_lake.properties import RETAINED_FROM, VACUUMED_AT
from headrace_lake.storage import Storage
from headrace_lake.tables import CHECKPOINT_EVERY, DAY

_TOMBSTONES: Final = "delta.deletedFileRetentionDuration"
_COMMIT: Final = re.compile(r"(\d{20})\.(json|crc|checkpoint\..*parquet)")
_VERSIONS: Final = 500  # whose commits go in one piece


def first_kept(days: int, now: float) -> date:
    """The first day to keep when `days` days before the present one (UTC, of `now`, Unix seconds) are kept."""
    return datetime.fromtimestamp(now, UTC).date() - timedelta(days=days)


def due(inventory: Inventory, first: date) -> bool:
    """Whether the table has days before `first`."""
    return any(day and day < first.isoformat() for day in inventory.parts)


def drop(spark: SparkSession, path: str, inventory: Inventory, first: date) -> None:
    """Drops the days before `first` from the table at `path`: a commit that touches no file. Blocks."""
    if inventory.properties.get(RETAINED_FROM, "") < first.isoformat():
        _set(spark, path, RETAINED_FROM, first.isoformat())
    spark.sql(f"DELETE FROM delta.`{path}` WHERE {DAY} < '{first.isoformat()}'")  # noqa: S608


def vacuum_due(inventory: Inventory, every: float) -> bool:
    """Whether it is `every` seconds since the table was last vacuumed, by whatever job."""
    try:
        last = float(inventory.properties[VACUUMED_AT])
    except (KeyError, ValueError):
        last = 0.0
    return not 0 <= time.time() - last < every


def vacuum(spark: SparkSession, path: str, inventory: Inventory, age: float) -> None:
    """Deletes the files of the table at `path` that no version of the last `age` seconds needs.

    They are what compaction and retention took out, and what killed jobs left behind. Blocks: it lists the table.
    """
    wanted = f"interval {int(age)} seconds"
    if inventory.properties.get(_TOMBSTONES) != wanted:
        _set(spark, path, _TOMBSTONES, wanted)
    spark.sql(f"VACUUM delta.`{path}`")
    _set(spark, path, VACUUMED_AT, str(int(time.time())))


class LogCleaner:
    """Deletes what lies in a table's log before the newest checkpoint that is old enough.

    Delta does so too, but by whole days after a month: at a trigger of 5 s that leaves half a million commits, and most
    file systems list all of them at each commit. What is younger than `age` seconds stays: a reader that follows the table
    commit by commit needs it.
    """

    def __init__(self, storage: Storage, table: str, inventory: Inventory, age: float) -> None:
        self._storage = storage
        self._folder = f"{table}/_delta_log"
        self._inventory = inventory
        self._age: Final = age
        self._low = -1  # nothing lies before it; -1: unknown
        self._keep = 0  # what lies before it may go

    def due(self) -> bool:
        """Whether something may go. Blocks on storage at times."""
        if self._low < 0:
            self._low = self._lowest()
        if self._keep <= self._low:
            self._advance()
        return self._keep > self._low

    def clean(self, stopping: Callable[[], bool]) -> None:
        """Deletes a piece of what may go, the oldest first: what is left has no hole."""
        until = min(self._keep, self._low + _VERSIONS)
        while self._low < until and not stopping():
            name = f"{self._folder}/{self._low:020d}"
            for kind in ("checkpoint.parquet", "crc", "json"):
                self._storage.delete(f"{name}.{kind}")
            self._low += 1

    def _lowest(self) -> int:
        names = self._storage.names(self._folder)
        return min((int(match[1]) for name in names if (match := _COMMIT.fullmatch(name))), default=0)

    def _advance(self) -> None:
        """A reader at a version needs the commits after it: a checkpoint will do once its successor is old enough."""
        horizon = time.time() - self._age
        commits = self._inventory.commits
        while len(commits) > 1 and commits[1][1] < horizon:
            version, _ = commits.popleft()
            name = f"{self._folder}/{version:020d}.checkpoint.parquet"
            if version % CHECKPOINT_EVERY == 0 and self._storage.exists(name):
                self._keep = version


def _set(spark: SparkSession, path: str, name: str, value: str) -> None:
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('{name}' = '{value}')")
