"""What the product asks of Spark's session: tables to read, Delta's writers, and its statements in SQL."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Protocol

import pyarrow as pa
from headrace_lake.kafka.checkpoint import Range
from headrace_lake.tables import erasures
from headrace_lake.tables.altered import unless_altered
from headrace_lake.tables.layout import DAY, KEY
from headrace_lake.tables.properties import APP_ID
from headrace_lake.upkeep.merging.rewrite import Check, Files

from tests.lake.model.frames import Frame, Rows, condition
from tests.lake.model.stage import Killed
from tests.lake.model.tables import Disk, Transaction


class World(Protocol):
    """All that outlives a process."""

    disk: Disk
    orphans: list[Callable[[], None]]

    def records(self, ranges: Iterable[Range]) -> Frame: ...

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

    def append(
        self,
        path: str,
        rows: Frame | pa.Table,
        version: int,
        token: str,
        latest: Callable[[], int],
        accept: None = None,
    ) -> None:
        transaction = self._world.disk.table(path).begin(self._app)
        self._world.step()
        if latest() < version:
            self._write(transaction, rows, version, token)

    def _write(self, transaction: Transaction, rows: Frame | pa.Table, version: int, token: str) -> None:
        lines = not isinstance(rows, Frame)
        world, data = self._world, rows.read() if isinstance(rows, Frame) else listed(rows)

        def act() -> None:
            transaction.commit(data, version=version, token=token, moment=world.now())
            if not lines and rows.observed is not None:
                rows.observed()

        commit(world, act)


def listed(rows: pa.Table) -> Rows:
    """The rows; days as texts, as in all of the model."""
    return [{**row, DAY: str(row[DAY])} if DAY in row else row for row in rows.to_pylist()]


class Writer(Appender):
    """Delta's own writer: it skips a version that the table has, or a later one."""

    def __init__(self, spark: Any, rows: Frame) -> None:
        super().__init__(spark)
        self._rows = rows
        self._options: dict[str, Any] = {"userMetadata": ""}

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
        if table.last(app) >= version:
            return
        if "replaceWhere" not in self._options:
            self._write(transaction, self._rows, version, str(self._options["userMetadata"]))
            return
        world, meets = self._world, condition(self._options["replaceWhere"])
        looked = dict(table.files)
        gone = [file for file, rows in looked.items() if any(map(meets, rows))]
        rows = [*(row for file in gone for row in looked[file] if not meets(row)), *self._rows.read()]
        commit(world, lambda: transaction.commit(rows, removed=gone, read=looked, version=version, moment=world.now()))


class Loaded(Frame):
    """The rows of a table, as they are when they are read."""

    def __init__(self, spark: Spark, read: Callable[[], Rows], columns: Mapping[str, str]) -> None:
        super().__init__(read, columns=list(columns))
        self._spark = spark
        kinds = [(name, SimpleNamespace(simpleString=lambda kind=kind: kind)) for name, kind in columns.items()]
        self.schema = SimpleNamespace(fields=[SimpleNamespace(name=name, dataType=kind) for name, kind in kinds])

    def where(self, wanted: Any) -> Frame:
        rows = super().where(wanted)
        rows.write = Writer(self._spark, rows)
        return rows


class Reading:
    """A reader of records from Kafka."""

    def __init__(self, world: World, ranges: Iterable[Range] = ()) -> None:
        self._world = world
        self._ranges = ranges

    def options(self, ranges: Iterable[Range]) -> Reading:
        return Reading(self._world, ranges)

    def load(self) -> Frame:
        return self._world.records(self._ranges)


class Stored:
    """In place of `Storage`, where its session is asked for as well."""

    def __init__(self, spark: Spark) -> None:
        self.spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self.spark.world.disk, name)


class Spark:
    """A session."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.read = self
        self.sparkContext = SimpleNamespace(setJobDescription=lambda _: None)
        self.conf = SimpleNamespace(set=lambda *_: None)
        self._jsc = SimpleNamespace(hadoopConfiguration=dict)

    def format(self, name: str) -> Any:
        return Reading(self.world) if name == "kafka" else self

    def schema(self, _: object) -> Spark:
        return self

    def load(self, path: str) -> Frame:
        def read() -> Rows:
            self.world.step()
            return self.world.disk.table(path).rows

        return Loaded(self, read, self.world.disk.table(path).columns)

    def range(self, count: int) -> Frame:
        return Frame(lambda: [{} for _ in range(count)])

    def sql(self, text: str) -> Frame:
        """The statements that the product makes."""
        table = re.search(r"delta\.`(.*?)`", text)
        path = "" if table is None else table[1]
        match text.split():
            case ["select", "*", "from", "values", *_]:
                return self._values(text)
            case ["DELETE", *_]:
                self._delete_days(path, text.rpartition("'")[0].rpartition("'")[2])
            case ["MERGE", *_]:
                self._delete_erased(path, re.findall(r"date'(.*?)'", text))
            case ["VACUUM", *_]:
                pass
            case _:
                raise NotImplementedError(text)
        return Frame(list)

    def _values(self, text: str) -> Frame:
        """Rows behind VALUES."""
        rows, _, names = text.removeprefix("select * from values ").rpartition(" as ")
        columns = names.partition("(")[2].rstrip(")").replace("`", "").split(", ")

        def python(found: re.Match[str]) -> str:
            return found[1] or found[2] or found[3] or "None"

        literals = re.sub(r"timestamp('[^']*')|('(?:[^'\\]|\\.)*')|\bnull\b|\b(\d+)L\b", python, rows)
        lines = [dict(zip(columns, line, strict=True)) for line in ast.literal_eval(f"[{literals}]")]
        for line in lines:
            if "landed_at" in line:
                line["landed_at"] = datetime.fromisoformat(line["landed_at"])
        frame = Frame(lambda: lines, columns=columns)
        frame.write = Writer(self, frame)
        return frame

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


def altered(spark: Any, path: str, wanted: Mapping[str, str]) -> None:
    """In place of `altered.set_properties`."""
    world: World = spark.world
    table = world.disk.table(path)
    transaction = table.begin()
    world.step()
    if wanted.items() - table.properties.items():
        unless_altered(lambda: commit(world, lambda: transaction.commit(properties=wanted, moment=world.now())))


def _day(file: str) -> str:
    return file.partition("/")[0].removeprefix(f"{DAY}=")
