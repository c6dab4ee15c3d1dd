"""Delta tables in memory: files of rows, commits that conflict as Delta's do, and the log as the product's own code reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from headrace_lake.tables.layout import DAY
from headrace_lake.tables.properties import APP_ID
from pyspark.errors import PySparkException

Row = dict[str, Any]
Rows = list[Row]

ROW_BYTES = 100
"""The size of a row in a file."""


@dataclass(frozen=True)
class Change:
    """What a commit did, for those that it may conflict with, and for the judge."""

    at: float
    """When it was made, by a clock that is right."""
    app: str = ""
    """The application in its transaction identifier, and the version there."""
    version: int = 0
    rows: tuple[Mapping[str, Any], ...] = ()
    """The rows that it brought; none if it only moved them."""
    removed: Set[str] = frozenset()


@dataclass
class Table:
    """`files`: path -> rows, of the newest version; `commits`: the texts of the log's files."""

    id: str
    now: Callable[[], float]
    """A clock that is right."""
    said: Callable[[], float]
    """The clock of the job, by which the log goes."""
    commits: list[str] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    files: dict[str, Rows] = field(default_factory=dict)
    stored: dict[str, Rows] = field(default_factory=dict)
    """The files that were ever written."""

    @property
    def rows(self) -> Rows:
        return [row for rows in self.files.values() for row in rows]

    def landed(self, app: str = APP_ID) -> Rows:
        """All rows that transactions of `app` ever brought."""
        return [dict(row) for change in self.changes if change.app == app for row in change.rows]

    def last(self, app: str) -> int:
        """The last transaction version of `app`; -1 if there is none."""
        return max((change.version for change in self.changes if change.app == app), default=-1)

    def begin(self, app: str = "") -> Transaction:
        return Transaction(self, app)

    def write(self, change: Change, token: str, added: Iterable[dict[str, Any]]) -> None:
        """Commits what no other commit contradicts."""
        at = round(self.said() * 1000)
        actions: list[Mapping[str, Any]] = [{"commitInfo": {"timestamp": at, "userMetadata": token}}]
        if not self.commits:
            actions.append({"metaData": {"id": self.id, "configuration": {}}})
        if change.app:
            actions.append({"txn": {"appId": change.app, "version": change.version}})
        gone = {path: ROW_BYTES * len(self.files.pop(path, ())) for path in sorted(change.removed)}
        actions += [{"remove": {"path": path, "size": size}} for path, size in gone.items()]
        by_day: dict[str, Rows] = {}
        for row in added:
            by_day.setdefault(str(row[DAY]) if DAY in row else "", []).append(row)
        for day, rows in by_day.items():
            path = f"{DAY}={day}/{len(self.commits)}" if day else f"{len(self.commits)}"
            self.files[path] = self.stored[path] = rows
            entry = {"path": path, "size": ROW_BYTES * len(rows), "modificationTime": at}
            actions.append({"add": {**entry, "stats": json.dumps({"numRecords": len(rows)})}})
        self.commits.append("\n".join(json.dumps(action) for action in actions))
        self.changes.append(change)


class Transaction:
    """What it reads of a table is as of its beginning, or later; `commit` is refused if another one came in between.

    `app`: the application whose version it reads.
    """

    def __init__(self, table: Table, app: str) -> None:
        self._table = table
        self._app = app
        self._since = len(table.changes)

    def commit(
        self,
        added: Sequence[dict[str, Any]] = (),
        *,
        removed: Iterable[str] = (),
        read: Iterable[str] = (),
        version: int = 0,
        token: str = "",
        moves: bool = False,
    ) -> None:
        """`read`: the files that it has read; `moves`: it changes no row.

        Raises Delta's errors (https://docs.delta.io/latest/concurrency-control.html).
        """
        table, gone = self._table, frozenset(removed)
        later = table.changes[self._since :]
        if self._app and any(change.app == self._app for change in later):
            raise PySparkException(message="ConcurrentTransactionException")
        if any(change.removed & (gone | set(read)) for change in later):
            raise PySparkException(message="ConcurrentDeleteReadException")
        rows = () if moves else tuple(added)
        change = Change(table.now(), self._app, version, rows, gone)
        table.write(change, token, added)


class Disk:
    """In place of `Storage`: the logs of tables. Each call is a step."""

    def __init__(self, step: Callable[[], None], now: Callable[[], float], said: Callable[[], float]) -> None:
        self.tables: dict[str, Table] = {}
        self._step = step
        self._clocks = now, said

    def make(self, path: str) -> None:
        """Makes a table, if there is none."""
        if path not in self.tables:
            table = self.tables[path] = Table(path, *self._clocks)
            table.begin().commit()

    def table(self, path: str) -> Table:
        return self.tables[path]

    # What the product calls

    def exists(self, path: str) -> bool:
        self._step()
        return path.removesuffix("/_delta_log") in self.tables

    def names(self, path: str) -> list[str]:
        self._step()
        table = self.tables.get(path.removesuffix("/_delta_log"))
        return [f"{number:020d}.json" for number in range(len(table.commits))] if table else []

    def read(self, path: str) -> str | None:
        self._step()
        folder, _, name = path.rpartition("/_delta_log/")
        commits, number = self.tables[folder].commits, int(name.removesuffix(".json"))
        return commits[number] if number < len(commits) else None
