"""What the product asks of Spark's session: tables to read, Delta's writers, and its statements in SQL."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol

from headrace_lake.tables import erasures
from headrace_lake.tables.digest import KEY
from headrace_lake.tables.layout import DAY
from headrace_lake.tables.properties import APP_ID
from headrace_lake.upkeep.merging.rewrite import Check, Files

from tests.lake.model.frames import Frame, Rows
from tests.lake.model.stage import Killed
from tests.lake.model.tables import Disk, Transaction


class World(Protocol):
    """All that outlives a process."""

    disk: Disk
    orphans: list[Callable[[], None]]

    def step(self) -> None: ...
    def chance(self) -> float: ...
    def now(self) -> float: ...


def commit(world: World, act: Callable[[], None]) -> None:
    """A commit, in a step. A kill leaves it under way: it may be made at any later time, or never."""
    try:
        world.step()
    except Killed:
        if world.chance() < 0.5:
            world.orphans.append(act)
        raise
    act()
    world.step()


class Appender:
    """Delta's writer, in the steps that the product's `Appender` takes."""

    def __init__(self, spark: Any, app: str = APP_ID) -> None:
        self._world: World = spark.world
        self._app = app

    def append(self, path: str, rows: Frame, version: int, token: str, latest: Callable[[], int]) -> None:
        transaction = self._world.disk.table(path).begin(self._app)
        self._world.step()
        if latest() < version:
            self._write(transaction, rows, version, token)

    def _write(self, transaction: Transaction, rows: Frame, version: int, token: str) -> None:
        world, data = self._world, rows.read()

        def act() -> None:
            transaction.commit(data, version=version, token=token, moment=world.now())
            if rows.observed is not None:
                rows.observed()

        commit(world, act)


class Writer(Appender):
    """Delta's own writer: it skips a version that the table has, or a later one."""

    def __init__(self, spark: Any, rows: Frame) -> None:
        super().__init__(spark)
        self._rows = rows
        self._options: dict[str, Any] = {}

    def option(self, name: str, value: object) -> Writer:
        self._options[name] = value
        return self

    def format(self, _: str) -> Writer:
        return self

    def mode(self, _: str) -> Writer:
        return self

    def save(self, path: str) -> None:
        table = self._world.disk.table(path)
        app, version = str(self._options["txnAppId"]), int(self._options["txnVersion"])
        transaction = table.begin(app)
        self._world.step()
        if table.last(app) < version:
            self._write(transaction, self._rows, version, str(self._options["userMetadata"]))


class Loaded(Frame):
    """The rows of a table, as they are when they are read."""

    def __init__(self, spark: Spark, read: Callable[[], Rows]) -> None:
        super().__init__(read)
        self._spark = spark

    def where(self, wanted: Any) -> Frame:
        rows = super().where(wanted)
        rows.write = Writer(self._spark, rows)  # type: ignore[attr-defined]
        return rows


class Spark:
    """A session."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.read = self
        self.sparkContext = SimpleNamespace(setJobDescription=lambda _: None)
        self.conf = SimpleNamespace(set=lambda *_: None)
        self._jsc = SimpleNamespace(hadoopConfiguration=dict)

    def format(self, _: str) -> Spark:
        return self

    def load(self, path: str) -> Frame:
        def read() -> Rows:
            self.world.step()
            return self.world.disk.table(path).rows

        return Loaded(self, read)

    def range(self, count: int) -> Frame:
        return Frame(lambda: [{} for _ in range(count)])

    def sql(self, text: str) -> Frame:
        """The statements that the product makes."""
        table = re.search(r"delta\.`(.*?)`", text)
        path = "" if table is None else table[1]
        match text.split():
            case ["select", *_]:  # the lines of `batches`, as a constant
                found = re.search(r"from_json\('(.*?)', 'array<struct", text, re.DOTALL)
                assert found is not None
                return Frame(partial(json.loads, found[1].replace("\\\\", "\\").replace("\\'", "'")))
            case ["DELETE", *_]:
                self._delete_days(path, text.rpartition("'")[0].rpartition("'")[2])
            case ["MERGE", *_]:
                self._delete_erased(path, re.findall(r"date'(.*?)'", text))
            case ["VACUUM", *_]:
                pass
            case _:
                raise NotImplementedError(text)
        return Frame(list)

    def _delete_days(self, path: str, first: str) -> None:
        table = self.world.disk.table(path)
        transaction = table.begin()
        gone = [file for file in table.files if _day(file) < first]
        self.world.step()
        if gone:
            commit(self.world, lambda: transaction.commit(removed=gone, moment=self.world.now()))

    def _delete_erased(self, path: str, days: Iterable[str]) -> None:
        """Deletes listed rows in `days`, and writes new files with the other rows of theirs."""
        table = self.world.disk.table(path)
        transaction = table.begin()
        looked = {file: rows for file, rows in table.files.items() if _day(file) in days}
        lake, _, name = path.rpartition("/")
        listed: Any = erasures.places(self, lake, name)  # type: ignore[arg-type]
        places = {tuple(row[key] for key in KEY) for row in listed.read()}
        kept = {
            file: [row for row in rows if tuple(row[key] for key in KEY) not in places] for file, rows in looked.items()
        }
        gone = [file for file, rows in kept.items() if len(rows) < len(looked[file])]
        if gone:
            rest = [row for file in gone for row in kept[file]]
            commit(
                self.world,
                lambda: transaction.commit(rest, removed=gone, read=looked, moves=True, moment=self.world.now()),
            )


def merged(spark: Any, files: Files, form: object, statistics: object, *, there: Check, going_on: Check) -> int:
    """In place of `rewrite.by_arrow`."""
    world: World = spark.world
    table = world.disk.table(files.path)
    rows = [row for file in files.sizes for row in table.stored[file]]
    world.step()
    transaction = table.begin()
    world.step()
    if not there():
        return 0
    commit(world, lambda: transaction.commit(rows, removed=files.sizes, moves=True, moment=world.now()))
    return sum(files.sizes.values())


def opened(spark: Any, path: str) -> tuple[Mapping[str, str], Callable[[Mapping[str, str]], object]]:
    """In place of `altered._opened`."""
    world: World = spark.world
    table = world.disk.table(path)
    transaction, have = table.begin(), table.properties
    world.step()
    return have, lambda wanted: commit(world, lambda: transaction.commit(properties=wanted, moment=world.now()))


def _day(file: str) -> str:
    return file.partition("/")[0].removeprefix(f"{DAY}=")
