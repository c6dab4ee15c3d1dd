"""What somebody does to the tables of a lake, each so that the proof must notice it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import date
from random import Random
from typing import Any

from headrace_lake.tables.erasures import ERASURES
from headrace_lake.tables.layout import BATCHES, DUPLICATES
from headrace_lake.tables.layout import EVENTS as EVENTS_TABLE
from headrace_lake.tables.layout import QUARANTINE as QUARANTINE_TABLE
from headrace_lake.tables.properties import APP_ID, RETAINED_APP

from tests.lake.model.judge import in_range
from tests.lake.model.lists import place_of
from tests.lake.model.tables import Disk, Row, Rows, Table

TABLES = (EVENTS_TABLE, QUARANTINE_TABLE, DUPLICATES)
_1970 = date(1970, 1, 1).toordinal()


class Damaged:
    """A copy of a lake at `lake`, which one of `DAMAGES` changes."""

    def __init__(self, disk: Disk, lake: str, chance: Random) -> None:
        self.lake = f"{lake}-damaged"
        disk.remove(self.lake)
        disk.copy(lake, self.lake)
        self.chance = chance
        self.disk = disk
        self.lines = self.table(BATCHES).rows

    def table(self, name: str) -> Table:
        return self.disk.tables[f"{self.lake}/{name}"]

    def erasures(self) -> Rows:
        return self.table(ERASURES).rows if f"{self.lake}/{ERASURES}" in self.disk.tables else []

    def line_of(self, row: Row) -> Row | None:
        return next((line for line in self.lines if in_range(place_of(row), line, line["topic_id"])), None)

    def rows(self, *names: str) -> Iterator[tuple[Rows, Row, Row, str]]:
        """The rows that count, whose line of `batches` retention does not excuse: file, row, line, table."""
        for name in names:
            kept_from = date.fromordinal(_1970 + max(0, self.table(name).last(RETAINED_APP))).isoformat()
            for file in self.table(name).files.values():
                for row in file:
                    line = self.line_of(row)
                    if line is not None and line["landed_at"].date().isoformat() >= kept_from:
                        yield file, row, line, name

    def some(self, found: Iterator[tuple[Rows, Row, Row, str]]) -> tuple[Rows, Row, Row, str] | None:
        every = [*found]
        return self.chance.choice(every) if every else None

    def change(self, name: str, old: Row | None, *new: Row) -> None:
        """Another writer replaces the row `old` by `new`."""
        table = self.table(name)
        gone = [path for path, rows in table.files.items() if any(each is old for each in rows)]
        rest = [each for path in gone for each in table.files[path] if each is not old]
        table.begin().commit([*rest, *new], removed=gone, moves=True)


def loses_a_row(lake: Damaged) -> bool:
    if found := lake.some(lake.rows(*TABLES)):
        lake.change(found[3], found[1])
    return bool(found)


def doubles_a_row(lake: Damaged) -> bool:
    if found := lake.some(lake.rows(*TABLES)):
        lake.change(found[3], None, found[1])
    return bool(found)


def brings_back_what_was_erased(lake: Damaged) -> bool:
    listed = {
        (row["topic_id"], row["partition"], offset)
        for row in lake.erasures()
        if row["table"] == EVENTS_TABLE
        for offset in row["offsets"] or ()
    }
    erased = [row for row in lake.table(EVENTS_TABLE).landed(APP_ID) if place_of(row) in listed]
    if erased:
        lake.change(EVENTS_TABLE, None, lake.chance.choice(erased))
    return bool(erased)


def loses_a_line(lake: Damaged) -> bool:
    """Not one of the last batch without rows, or with those alone that a job had left: the next claim excuses them no more."""
    last = max(((line["epoch"], line["batch"]) for line in lake.lines), default=None)
    strays: dict[Any, int] = {}
    for line in lake.lines:
        place = line["topic_id"], line["partition"]
        strays[place] = max(strays.get(place, 0), line["strays"] or 0)
    full = [
        line for _, row, line, _ in lake.rows(*TABLES)
        if row["offset"] >= strays[row["topic_id"], row["partition"]]
    ]  # fmt: skip
    some = [line for line in lake.lines if (line["epoch"], line["batch"]) != last or line in full]
    if some:
        lake.change(BATCHES, lake.chance.choice(some))
    return bool(some)


def moves_an_end(lake: Damaged) -> bool:
    """Between two ranges, where it leaves a hole or makes an overlap."""
    follows = {(line["topic_id"], line["partition"], line["from"]) for line in lake.lines}
    inner = [line for line in lake.lines if (line["topic_id"], line["partition"], line["to"]) in follows]
    if inner:
        line = lake.chance.choice(inner)
        lake.change(BATCHES, line, {**line, "to": line["to"] + lake.chance.choice((-1, 1))})
    return bool(inner)


def restores_an_earlier_version(lake: Damaged) -> bool:
    """Of a table whose rows were others then. Delta keeps its transactions."""
    name = lake.chance.choice(TABLES)
    table, before = lake.table(name), {place_of(row) for _, row, _, _ in lake.rows(name)}
    files, now = dict[str, Rows](), table.files
    versions = []
    for action in (json.loads(line) for text in table.commits for line in text.splitlines()):
        if "add" in action:
            files[action["add"]["path"]] = table.stored[action["add"]["path"]]
        elif "remove" in action:
            files.pop(action["remove"]["path"], None)
        elif "commitInfo" in action:
            versions.append(dict(files))
    for table.files in lake.chance.sample(versions, len(versions)):
        if {place_of(row) for _, row, _, _ in lake.rows(name)} != before:
            return True
    table.files = now
    return False


DAMAGES: tuple[Callable[[Damaged], bool], ...] = (
    loses_a_row, doubles_a_row, brings_back_what_was_erased, loses_a_line, moves_an_end, restores_an_earlier_version,
)  # fmt: skip
"""What somebody does; each returns False if there was nothing to do it to. `test_query.py` has more kinds, on a small lake."""
