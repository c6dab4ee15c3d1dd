"""Deletes whole days of rows, files that no version needs, and commits that no reader needs. Never single rows of a day."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Final

from headrace_lake.tables.on_spark import Tables
from headrace_lake.tables.properties import RETAINED_APP, VACUUMED_AT
from headrace_lake.tables.transaction_log import LiveFiles, day_of

_TOMBSTONES: Final = "delta.deletedFileRetentionDuration"


def first_kept(days: int, now: float, newest: str) -> date:
    """Returns the first day to keep, of `days` days before today (UTC), and not after `newest`, the newest landed day as text.

    `now` in Unix seconds. So whatever a clock says, the tables' last day stays.
    """
    today = datetime.fromtimestamp(now, UTC).date().toordinal()
    first = date.fromordinal(max(1, today - days))
    return min(first, date.fromisoformat(newest)) if newest else first


def due(table: LiveFiles, first: date) -> bool:
    """Returns whether the table holds days before `first`."""
    return any("" < day_of(name) < first.isoformat() for name in table.files)


def drop(tables: Tables, name: str, table: LiveFiles, first: date) -> None:
    """Drops the days before `first` from the table `name`. No commit reads or writes a data file. Blocks.

    The transaction excuses the rows. A job that has taken over may have dropped more: then it is not committed.
    """

    def kept_from() -> int:
        table.latest()
        return table.kept_from()

    days = (first - date(1970, 1, 1)).days
    tables.append(name, None, days, f"retain {first}", kept_from, app=RETAINED_APP)
    tables.delete_days(name, first)


def vacuum_due(table: LiveFiles, every: float) -> bool:
    """Returns whether the last vacuum of the table, by any job, is `every` seconds ago."""
    try:
        last = float(table.properties[VACUUMED_AT])
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
