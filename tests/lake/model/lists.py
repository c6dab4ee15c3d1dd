"""What Spark does for the job, over lists: questions to the tables, and rows that are written to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from datetime import date, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from headrace_lake.kafka.start import spans
from headrace_lake.landing.left_out import LeftOut
from headrace_lake.landing.plan import Execution, Landed, Plan
from headrace_lake.rows.decode import Topics
from headrace_lake.tables.erasures import ERASURES
from headrace_lake.tables.fence import Fence
from headrace_lake.tables.layout import BATCHES, DAY, DUPLICATES, GAPS, KEY
from headrace_lake.tables.layout import EVENTS as EVENTS_TABLE
from headrace_lake.tables.layout import QUARANTINE as QUARANTINE_TABLE
from headrace_lake.tables.on_spark import Held, Line, Span, Sums
from headrace_lake.tables.properties import APP_ID, ERASED_APP
from headrace_lake.upkeep.merging.choice import Piece

from tests.lake.model.stage import Killed
from tests.lake.model.tables import Row, Rows

if TYPE_CHECKING:
    from tests.lake.model.job import World

Place = tuple[str, int, int]
COVERED = (EVENTS_TABLE, QUARANTINE_TABLE, DUPLICATES)
HORIZON = 600.0
"""Seconds within which the same event is recognised (`LAKE__DEDUP_HORIZON`)."""


def place_of(row: Mapping[str, Any]) -> Place:
    topic, partition, offset = (row[name] for name in KEY)
    return topic, partition, offset


def covers(line: Mapping[str, Any], place: Place) -> bool:
    """Whether `place` lies in the range of a line of `batches` or `gaps`; a topic that is no more has no end."""
    same = (line["topic_id"], line["partition"]) == place[:2] and line["from"] is not None
    return same and bool(line["from"] <= place[2] and (line["to"] is None or place[2] < line["to"]))


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


class Lists:
    """In place of `Tables`. Each question, and each part of a write, is a step."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lake = "the lake"
        self.storage = world.disk
        # what compaction asks of Spark beside `replace`
        hadoop = SimpleNamespace(hadoopConfiguration=dict)
        self.spark = SimpleNamespace(world=world, conf=SimpleNamespace(set=lambda *_: None), _jsc=hadoop)

    def path(self, name: str) -> str:
        return name

    def read(self, name: str) -> Rows:
        self.world.step()
        return self.world.disk.table(name).rows

    def append(
        self,
        name: str,
        rows: Rows | pa.Table | None,
        version: int,
        token: str,
        latest: Callable[[], int],
        accept: None = None,
        *,
        app: str = APP_ID,
    ) -> None:
        transaction = self.world.disk.table(name).begin(app)
        self.world.step()
        if latest() >= version:
            return
        data = [] if rows is None else rows if isinstance(rows, list) else rows.to_pylist()
        for row in data:
            if DAY in row:
                row[DAY] = str(row[DAY])  # as in all of the model

        def act() -> None:
            transaction.commit(data, version=version, token=token)

        commit(self.world, act)

    def sums(self) -> list[Sums]:
        lines: dict[tuple[Any, ...], Rows] = {}
        for row in [*self.read(BATCHES), *self.read(GAPS)]:
            if row["to"] is not None or row["reason"] == "recreated":
                key = row["topic"], row["topic_id"], row["partition"], str(row.get("reason") or "")
                lines.setdefault(key, []).append(row)
        return [Sums(*key, *_summed(rows)) for key, rows in lines.items()]

    def lines(self) -> Iterator[Line]:
        names = ("topic", "topic_id", "partition", "from", "to", "landed_at", "epoch", "strays", "number")
        for row in sorted(self.read(BATCHES), key=lambda row: -row["number"]):
            yield Line(*(row[name] for name in names))

    def last_gap(self) -> int:
        return max((row["epoch"] for row in self.read(GAPS)), default=0)

    def delete_lines(self, first: int, version: int) -> None:
        table = self.world.disk.table(BATCHES)
        transaction = table.begin(APP_ID)
        self.world.step()
        if table.last(APP_ID) >= version:
            return
        gone = [file for file, rows in table.files.items() if any(row["number"] >= first for row in rows)]
        rest = [row for file in gone for row in table.files[file] if row["number"] < first]
        commit(self.world, lambda: transaction.commit(rest, removed=gone, version=version, moves=True))

    def places(self, given: Iterable[Span]) -> dict[Place, datetime]:
        """Place -> `landed_at` of all that has landed, was left out, or was erased."""
        inside = list(given)
        found = {place_of(row): row["landed_at"] for name in COVERED for row in self.read(name)}
        found |= {place: at for name in COVERED for place, at in self.erased(name).items() if place not in found}
        return {
            place: at for place, at in found.items()
            if any(place[:2] == span[:2] and span.start <= place[2] < span.end for span in inside)
        }  # fmt: skip

    def held(self, given: Iterable[Span]) -> dict[tuple[str, int], Held]:
        return held_in(self.places(given))

    def newest_event(self) -> int:
        return max((row["received_time"] for row in self.read(EVENTS_TABLE)), default=0)

    def erasures(self) -> Rows:
        """Lines that list anything; none without the table."""
        there = ERASURES in self.world.disk.tables
        return [row for row in self.read(ERASURES) if row["offsets"]] if there else []

    def erased(self, name: str) -> dict[Place, datetime]:
        """Place -> `landed_at` of what was erased from a table."""
        listed: dict[Place, datetime] = {}
        for row in self.erasures():
            for offset in row["offsets"] if row["table"] == name else ():
                place = row["topic_id"], row["partition"], offset
                listed[place] = min(listed.get(place, row["landed_at"]), row["landed_at"])
        return listed

    def erased_ids(self) -> set[str]:
        return {name for row in self.erasures() for name in row["ids"]}

    def delete_days(self, name: str, first: date) -> None:
        table = self.world.disk.table(name)
        transaction = table.begin()
        gone = [file for file in table.files if day_of(file) < first.isoformat()]
        self.world.step()
        if gone:
            commit(self.world, lambda: transaction.commit(removed=gone))

    def clean_log(self, name: str) -> None:
        pass

    def vacuum(self, name: str, age: float) -> None:
        pass


def _summed(rows: Rows) -> tuple[Any, ...]:
    """The rest of `Sums`."""
    times = [int(row["landed_at"].timestamp() * 1000) for row in rows if "batch" in row and row["from"] < row["to"]]
    end = max((row["to"] for row in rows if row["to"] is not None), default=None)
    last = max(row.get("number") or 0 for row in rows)
    return end, last, max(times, default=None)


def held_in(there: Mapping[Place, datetime]) -> dict[tuple[str, int], Held]:
    parts: dict[tuple[str, int], list[tuple[int, datetime]]] = {}
    for (topic_id, number, offset), at in there.items():
        parts.setdefault((topic_id, number), []).append((offset, at))
    return {
        part: Held(len(rows), max(offset for offset, _ in rows), min(at for _, at in rows))
        for part, rows in parts.items()
    }


def day_of(file: str) -> str:
    return file.partition("/")[0].removeprefix(f"{DAY}=")


def merged(spark: Any, path: str, piece: Piece, form: object, statistics: object, *, there: Callable[[], bool]) -> int:
    """In place of `compaction.replace`."""
    world: World = spark.world
    table = world.disk.table(path)
    rows = [row for file in piece.files for row in table.stored[file]]
    world.step()
    transaction = table.begin()
    world.step()
    if not there():
        return 0
    commit(world, lambda: transaction.commit(rows, removed=piece.files, moves=True))
    return sum(piece.files.values())


class Ids:
    """An index that forgets nothing: a place is no duplicate of itself."""

    def __init__(self, tables: Lists, topic_id: str, since: int) -> None:
        self._known: dict[str, tuple[int, Any]] = {}
        for row in tables.read(EVENTS_TABLE):
            if row["received_time"] >= since:
                place = (row["partition"], row["offset"]) if row["topic_id"] == topic_id else None
                self._known[row["event_id"]] = row["received_time"], place

    def is_again(self, row: Row) -> bool:
        place, time = (row["partition"], row["offset"]), row["received_time"]
        known = self._known.get(row["event_id"])
        if known is not None and abs(known[0] - time) <= HORIZON * 1000:
            return bool(known[1] != place)
        self._known[row["event_id"]] = time, place
        return False


class OnLists(Execution):
    """Lands batches. A record without an id is no event."""

    def __init__(self, tables: Lists, fence: Fence, topics: Topics, ids: Ids) -> None:
        self._tables = tables
        self._fence = fence
        self._topics = topics
        self._ids = ids
        self._erased: Set[str] = set()
        self._records: Callable[[], Rows] = list
        self._there: Mapping[Place, datetime] = {}

    def begin(self, records: Any, plan: Plan) -> Landed:
        self._erased = self._tables.erased_ids()
        self._there = self._tables.places(spans(plan.ranges, self._topics.ids)) if plan.strays else {}
        self._records = lambda: [row for row in records() if place_of(row) not in self._there]
        result = Landed(plan.landed_at)
        result.add_held(held_in(self._there), self._topics.ids)
        return result

    def events(self, plan: Plan, result: Landed) -> None:
        if not any(item.topic == self._topics.events for item in plan.ranges):
            return
        rows = [row for row in self._records() if row["topic"] == self._topics.events]
        wanted: Rows = []
        for row in rows:
            if not row["event_id"]:
                result.faulty += 1
            elif self._ids.is_again(row) or row["event_id"] in self._erased:
                result.left_out.append(LeftOut(*place_of(row), row["event_id"], "forward"))
            else:
                wanted.append(row)
        self._fence.write(EVENTS_TABLE, landed(wanted, plan.landed_at, protocol="forward"), plan.version)
        result.records.update((row["topic"], row["partition"]) for row in rows)
        result.newest = max((row["received_time"] for row in rows), default=None)

    def quarantine(self, plan: Plan, result: Landed) -> None:
        if not result.faulty and not any(item.topic == self._topics.quarantine for item in plan.ranges):
            return
        rows = [row for row in self._records() if row["topic"] == self._topics.quarantine or not row["event_id"]]
        self._fence.write(QUARANTINE_TABLE, landed(rows, plan.landed_at, id=""), plan.version)
        result.records.update(
            (row["topic"], row["partition"]) for row in rows if row["topic"] == self._topics.quarantine
        )

    def end(self) -> None:
        pass


def landed(rows: Rows, at: datetime, **more: str) -> Rows:
    return [{**row, "landed_at": at, DAY: at.date().isoformat(), **more} for row in rows]


class ErasureLists:
    """In place of `ErasureRows`: names the records at `wanted`."""

    def __init__(self, tables: Lists, wanted: Set[Place]) -> None:
        self._tables = tables
        self._wanted = wanted
        self._found: Rows = []

    def erasures(self) -> int:
        there = ERASURES in self._tables.world.disk.tables
        return len({row["erasure"] for row in self._tables.read(ERASURES)}) if there else 0

    def find(self, _: object) -> dict[str, int]:
        """Makes a line of each row."""
        events, rejects = (self._tables.read(name) for name in (EVENTS_TABLE, QUARANTINE_TABLE))
        gone = self._tables.erased_ids() | {row["event_id"] for row in events if place_of(row) in self._wanted}
        found = {
            EVENTS_TABLE: [row for row in events if row["event_id"] in gone],
            QUARANTINE_TABLE: [row for row in rejects if place_of(row) in self._wanted],
        }
        self._found = []
        for table, rows in found.items():
            listed = self._tables.erased(table)
            for row in rows:
                if place_of(row) not in listed:
                    same = {name: row[name] for name in ("topic", "topic_id", "partition", "landed_at")}
                    ids = [row["event_id"]] if table == EVENTS_TABLE else []
                    self._found.append({"table": table, **same, "rows": 1, "offsets": [row["offset"]], "ids": ids})
        return Counter(row["table"] for row in self._found)

    def list_found(self, own: Mapping[str, str], number: int, latest: Callable[[], int]) -> None:
        self._tables.world.disk.make(ERASURES)
        nothing = dict.fromkeys(("table", "topic", "topic_id", "partition", "landed_at", "offsets", "ids"))
        rows = [{**row, **own} for row in self._found or [{**nothing, "rows": 0}]]
        self._tables.append(ERASURES, rows, number, own["erasure"], latest, app=ERASED_APP)

    def is_listed(self, erasure: str) -> bool:
        return any(row["erasure"] == erasure for row in self._tables.read(ERASURES))

    def left(self, table: str) -> dict[str, int]:
        listed = self._tables.erased(table)
        return Counter(row[DAY] for row in self._tables.read(table) if place_of(row) in listed)

    def delete(self, table: str, days: Iterable[str]) -> None:
        """Writes new files with the other rows."""
        world, there = self._tables.world, self._tables.world.disk.table(table)
        transaction = there.begin()
        looked = {file: rows for file, rows in there.files.items() if day_of(file) in days}
        listed = self._tables.erased(table)
        kept = {file: [row for row in rows if place_of(row) not in listed] for file, rows in looked.items()}
        gone = [file for file, rows in kept.items() if len(rows) < len(looked[file])]
        rest = [row for file in gone for row in kept[file]]
        if gone:
            commit(world, lambda: transaction.commit(rest, removed=gone, read=looked, moves=True))

    def close(self) -> None:
        pass
