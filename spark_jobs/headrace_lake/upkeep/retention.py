"""Deletes whole days of rows, files that no version needs, and commits that no reader needs. Never single rows of a day."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Final

from headrace_lake.spark.storage import Storage
from headrace_lake.tables.layout import CHECKPOINT_EVERY
from headrace_lake.tables.on_spark import Tables
from headrace_lake.tables.properties import RETAINED_APP, VACUUMED_AT
from headrace_lake.upkeep.inventory import Inventory

_TOMBSTONES: Final = "delta.deletedFileRetentionDuration"
_COMMIT: Final = re.compile(r"(\d{20})\.(json|crc|checkpoint\..*parquet)")
_VERSIONS: Final = 500  # versions whose commits one piece deletes


def first_kept(days: int, now: float, newest: str) -> date:
    """Returns the first day to keep, of `days` days before today (UTC), and not after `newest`, the newest landed day as text.

    `now` in Unix seconds. So whatever a clock says, the tables' last day stays.
    """
    today = datetime.fromtimestamp(now, UTC).date().toordinal()
    first = date.fromordinal(max(1, today - days))
    return min(first, date.fromisoformat(newest)) if newest else first


def due(inventory: Inventory, first: date) -> bool:
    """Returns whether the table holds days before `first`."""
    return any(day and day < first.isoformat() for day in inventory.days)


def drop(tables: Tables, name: str, inventory: Inventory, first: date) -> None:
    """Drops the days before `first` from the table `name`. No commit reads or writes a data file. Blocks.

    The transaction excuses the rows. A job that has taken over may have dropped more: then it is not committed.
    """

    def kept_from() -> int:
        inventory.latest()
        return inventory.kept_from()

    days = (first - date(1970, 1, 1)).days
    tables.append(name, None, days, f"retain {first}", kept_from, app=RETAINED_APP)
    tables.delete_days(name, first)


def vacuum_due(inventory: Inventory, every: float) -> bool:
    """Returns whether the last vacuum of the table, by any job, is `every` seconds ago."""
    try:
        last = float(inventory.properties[VACUUMED_AT])
    except (KeyError, ValueError):
        last = 0.0
    return not 0 <= time.time() - last < every


def vacuum(tables: Tables, name: str, age: float, stopping: Callable[[], bool]) -> None:
    """Deletes the files of the table `name` that no version of the last `age` seconds needs.

    These are the files that compaction and retention removed, and those that killed jobs left. Blocks: it lists the table. If
    `stopping`, it ends soon, without its end being noted: the next run begins again.
    """
    tables.set_properties(name, {_TOMBSTONES: f"interval {int(age)} seconds"})
    if tables.vacuum(name, stopping):
        tables.set_properties(name, {VACUUMED_AT: str(int(time.time()))})


class LogCleaner:
    """Deletes the commits in a table's log before the newest checkpoint that is old enough.

    Delta does this too, but in whole days and after a month: at a trigger of 5 s the log then holds half a million commits,
    and most file systems list all of them for each commit. Commits younger than `age` seconds stay: a reader that follows
    the table commit by commit needs them.
    """

    def __init__(self, storage: Storage, table: str, inventory: Inventory, age: float) -> None:
        self._storage = storage
        self._folder = f"{table}/_delta_log"
        self._inventory = inventory
        self._age: Final = age
        self._low = -1  # the log holds nothing before it; -1: unknown
        self._keep = 0  # commits before it may be deleted

    def due(self) -> bool:
        """Returns whether commits may be deleted. May block on storage."""
        if self._low < 0:
            self._low = self._lowest()
        if self._keep <= self._low:
            self._advance()
        return self._keep > self._low

    def clean(self, stopping: Callable[[], bool]) -> None:
        """Deletes one piece of the commits that may go, oldest first, so that the rest has no hole."""
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
        """Looks for the newest checkpoint that is old enough: once the commit after it is, for a reader at its version needs
        that.
        """
        horizon = time.time() - self._age
        commits = self._inventory.commits
        while len(commits) > 1 and commits[1][1] < horizon:
            version, _ = commits.popleft()
            name = f"{self._folder}/{version:020d}.checkpoint.parquet"
            if version % CHECKPOINT_EVERY == 0 and self._storage.exists(name):
                self._keep = version
