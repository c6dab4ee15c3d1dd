"""Deletes whole days of rows, files that no version needs, and commits that no reader needs. Never single rows of a day."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime

from headrace_lake.tables.on_spark import Tables
from headrace_lake.tables.properties import RETAINED_APP, VACUUMED_APP
from headrace_lake.tables.transaction_log import LiveFiles, day_of


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
    _note(tables, name, table, RETAINED_APP, (first - date(1970, 1, 1)).days)
    tables.delete_days(name, first)


def vacuum_due(table: LiveFiles, every: float) -> bool:
    """Returns whether the last vacuum of the table, by any job, is `every` seconds ago; before one, whether its creation is: a
    new table has nothing to delete, and a vacuum runs much code that a young JVM has not compiled.
    """
    noted = table.version_of(VACUUMED_APP)
    last = noted if noted >= 0 else (table.metadata.get("createdTime") or 0) / 1000
    return not 0 <= time.time() - last < every


def vacuum(tables: Tables, name: str, table: LiveFiles, age: float) -> None:
    """Deletes the files of the table `name` that no version of the last `age` seconds needs.

    These are the files that compaction and retention removed, and those that killed jobs left. Blocks: it lists the table.
    """
    tables.vacuum(name, age)
    _note(tables, name, table, VACUUMED_APP, int(time.time()))


def _note(tables: Tables, name: str, table: LiveFiles, app: str, version: int) -> None:
    """Commits a transaction of `app`, unless the table has this version of it, or a later one."""

    def latest() -> int:
        table.latest()
        return table.version_of(app)

    tables.append(name, None, version, f"{app} {version}", latest, app=app)
