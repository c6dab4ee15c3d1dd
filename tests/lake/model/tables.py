"""Delta tables in memory: commits with our transaction versions, as the job's own reader of the log finds them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace_lake.spark.halt import HaltError
from headrace_lake.tables.properties import APP_ID
from pyspark.errors import PySparkException
from pyspark.sql import Row

Rows = list[dict[str, Any]]
Condition = Callable[[Mapping[str, Any]], bool]


class Expression:
    """A column, or a condition, over a row. What the model need not know gives another that does not matter."""

    def __init__(self, value: Condition | Callable[[Mapping[str, Any]], Any]) -> None:
        self.value = value

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return Expression(lambda row: self.value(row) == other)

    __hash__ = None  # type: ignore[assignment]

    def __and__(self, other: Expression) -> Expression:
        return Expression(lambda row: self.value(row) and other.value(row))

    def __or__(self, other: Expression) -> Expression:
        return Expression(lambda row: self.value(row) or other.value(row))

    def __sub__(self, other: Expression) -> Expression:
        return self

    def __invert__(self) -> Expression:
        return Expression(lambda row: not self.value(row))

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self


class Functions:
    """In place of `pyspark.sql.functions`."""

    def col(self, name: str) -> Expression:
        return Expression(lambda row: row[name])

    def lit(self, value: object) -> Expression:
        return Expression(lambda _: value)

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: Expression(lambda _: None)


class Observed:
    """In place of `Observation`. `get` is there once the rows that it counts are committed."""

    get: dict[str, Any]


class Frame:
    """Rows that are read when they are needed, as often as they are needed."""

    def __init__(self, read: Callable[[], Rows], observed: Callable[[Rows], None] | None = None) -> None:
        self.read = read
        self.observed = observed

    def where(self, condition: Any) -> Frame:
        holds = CONDITIONS[condition] if isinstance(condition, str) else condition.value
        return Frame(lambda: [row for row in self.read() if holds(row)], self.observed)

    def select(self, *columns: Any) -> Frame:
        names = [name for name in columns if isinstance(name, str)]
        return Frame(lambda: [{name: row[name] for name in names if name in row} for row in self.read()], self.observed)

    def withColumn(self, name: str, value: Expression) -> Frame:
        return Frame(lambda: [{**row, name: value.value(row)} for row in self.read()], self.observed)

    def join(self, other: Frame, keys: list[str], how: str) -> Frame:
        def joined() -> Rows:
            there = {tuple(row[key] for key in keys) for row in other.read()}
            return [row for row in self.read() if (tuple(row[key] for key in keys) in there) == (how == "left_semi")]

        return Frame(joined, self.observed)

    def unionAll(self, other: Frame) -> Frame:
        return Frame(lambda: [*self.read(), *other.read()])

    def coalesce(self, _: int) -> Frame:
        return self

    def observe(self, observation: Observed, *measures: Callable[[Rows], dict[str, Any]]) -> Frame:
        seen: dict[str, Any] = {}

        def read() -> Rows:
            rows = self.read()
            for measure in measures:
                seen.update(measure(rows))
            return rows

        def committed(_: Rows) -> None:
            observation.get = seen

        return Frame(read, committed)

    def agg(self, *measures: Callable[[Rows], dict[str, Any]]) -> Frame:
        def read() -> Rows:
            rows = self.read()
            return [{name: value for measure in measures for name, value in measure(rows).items()}]

        return Frame(read)

    def groupBy(self, *keys: Any) -> Grouped:
        return Grouped(self)

    def first(self) -> Row | None:
        return next(iter(self.collect()), None)

    def collect(self) -> list[Row]:
        return [Row(**row) for row in self.read()]

    def isEmpty(self) -> bool:
        return not self.read()


class Grouped:
    """The two groupings that are asked for: a batch's counts by partition, and the last offsets by place."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def agg(self, *measures: Any) -> Grouped:
        self._measures = len(measures)
        return self

    def collect(self) -> list[tuple[Any, ...]]:
        rows = self._frame.read()
        found: dict[Any, tuple[Any, ...]] = {}
        if self._measures == 1:
            for row in rows:
                place = row["topic_id"], row["partition"]
                found[place] = *place, max(row["offset"], found.get(place, (0, 0, -1))[2])
            return list(found.values())
        for row in rows:
            n, name, records, good, *_, time = found.get(row["partition"], (row["partition"], "forward", 0, 0, 0, 0, 0))
            sound = row["event_id"] != ""
            found[row["partition"]] = (n, name, records + 1, good + sound, 0, 0, max(time, row["received_time"]))
        return list(found.values())


CONDITIONS: dict[str, Condition] = {"false": lambda _: False}
"""SQL that conditions are written in, and what it means here."""


@dataclass
class Table:
    """`rows` of all commits; `commits`: the texts of the log's files."""

    id: str
    commits: list[str] = field(default_factory=list)
    rows: Rows = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    transactions: list[int] = field(default_factory=list)
    """By commit: whether it altered the table (-1), or our transaction version; 0 for others."""

    def alter(self, properties: Mapping[str, str]) -> None:
        self.properties |= properties
        self._commit({"metaData": {"id": self.id, "configuration": self.properties}})
        self.transactions.append(-1)

    def append(self, rows: Rows, since: int, version: int, token: str) -> None:
        """Commits if no other transaction of ours, and no alteration, came after the commit number `since`."""
        later = self.transactions[since:]
        if any(other > 0 for other in later):
            raise PySparkException(message="ConcurrentTransactionException")
        if -1 in later:
            raise PySparkException(message="MetadataChangedException")
        added = [{"add": {"path": "f", "stats": json.dumps({"numRecords": len(rows)})}}] if rows else []
        self._commit({"commitInfo": {"userMetadata": token}}, {"txn": {"appId": APP_ID, "version": version}}, *added)
        self.transactions.append(version)
        self.rows.extend(rows)

    def _commit(self, *actions: Mapping[str, Any]) -> None:
        self.commits.append("\n".join(json.dumps(action) for action in actions))


class Disk:
    """In place of `Storage`: files by path, and the logs of tables. Each call is a step."""

    def __init__(self, step: Callable[[], None]) -> None:
        self.files: dict[str, str] = {}
        self.tables: dict[str, Table] = {}
        self._step = step

    def table(self, path: str) -> Table:
        return self.tables[path]

    def copy(self, source: str, target: str) -> None:
        """Copies all tables, or all files, below `source`."""
        for path in [path for path in self.tables if path.startswith(f"{source}/")]:
            self.tables[target + path.removeprefix(source)] = copy.deepcopy(self.tables[path])
        self.remove(target, tables=False)
        for path in [path for path in self.files if path.startswith(f"{source}/")]:
            self.files[target + path.removeprefix(source)] = self.files[path]

    def remove(self, folder: str, *, tables: bool = True) -> None:
        self.files = {path: text for path, text in self.files.items() if not path.startswith(f"{folder}/")}
        if tables:
            self.tables = {path: table for path, table in self.tables.items() if not path.startswith(f"{folder}/")}

    # What the job calls

    def exists(self, path: str) -> bool:
        self._step()
        return path in self.files or any(other.startswith(f"{path}/") for other in self.files)

    def names(self, path: str) -> list[str]:
        self._step()
        table = self.tables.get(path.removesuffix("/_delta_log"))
        if table is not None:
            return [f"{number:020d}.json" for number in range(len(table.commits))]
        inside = (other.removeprefix(f"{path}/") for other in self.files if other.startswith(f"{path}/"))
        return sorted({name.partition("/")[0] for name in inside})

    def read(self, path: str) -> str | None:
        self._step()
        folder, _, name = path.rpartition("/_delta_log/")
        if folder in self.tables:
            number = int(name.removesuffix(".json"))
            commits = self.tables[folder].commits
            return commits[number] if number < len(commits) else None
        return self.files.get(path)

    def write(self, path: str, text: str) -> None:
        self._step()
        if path in self.files:
            raise HaltError(f"{path} cannot be written: it exists already, or its folder does not")
        self.files[path] = text
        self._step()

    def delete(self, path: str) -> bool:
        self._step()
        gone = [other for other in self.files if other == path or other.startswith(f"{path}/")]
        for other in gone:
            del self.files[other]
        return bool(gone)


def places(rows: Iterable[Mapping[str, Any]]) -> Rows:
    """The key of each row."""
    return [{name: row[name] for name in ("topic_id", "partition", "offset")} for row in rows]
