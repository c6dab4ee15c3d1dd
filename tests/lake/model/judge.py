"""What must be true of a lake when a history is over."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from headrace_lake.kafka.start import CLAIM
from headrace_lake.tables.erasures import ERASURES
from headrace_lake.tables.layout import BATCHES, DAY, DUPLICATES, GAPS
from headrace_lake.tables.layout import EVENTS as EVENTS_TABLE
from headrace_lake.tables.properties import ERASED_APP, RETAINED_APP
from headrace_lake.upkeep.clocks import TOLERANCE

from tests.lake.model.job import World
from tests.lake.model.lists import COVERED, HORIZON, Place, covers, place_of
from tests.lake.model.tables import Rows, Table
from tests.lake.model.topics import Topic

_1970 = date(1970, 1, 1)


class Judge:
    """Compares a lake with all that was ever in the topics.

    A row that has landed may be missing only if a transaction of retention or of an erasure says so.
    """

    def __init__(self, world: World) -> None:
        disk = world.disk
        self.kafka = world.kafka
        self.days = world.retention_days
        self.began = world.began
        self.batches, self.gaps = (disk.table(name).rows for name in (BATCHES, GAPS))
        self.tables = {name: disk.table(name) for name in COVERED}
        self.landed = {name: {place_of(row): row for row in table.landed()} for name, table in self.tables.items()}
        """All that transactions of the job have brought."""
        self.there = {name: {place_of(row) for row in table.rows} for name, table in self.tables.items()}
        self.lost, self.left = world.lost, world.left
        erasures = disk.tables.get(ERASURES)
        self.erased: Rows = [row for row in erasures.landed(ERASED_APP) if row["offsets"]] if erasures else []
        self.listed = [
            (row["table"], (row["topic_id"], row["partition"], offset))
            for row in self.erased
            for offset in row["offsets"]
        ]
        """Table and place of what erasures have listed."""
        self.listed_at = {
            name: change.at
            for change in reversed(erasures.changes if erasures else [])
            for row in change.rows
            for name in row["ids"] or ()
        }
        """Id -> when it was erased first."""
        self.found: list[str] = []

    def faults(self) -> list[str]:
        numbers = sorted(row["number"] for row in self.batches)
        self.holds(numbers == list(range(1, len(numbers) + 1)), "batches are not numbered from 1 on")
        there = [place_of(row) for name in COVERED for row in self.tables[name].rows]
        self.once(there, "landed twice")
        self.no_event_twice()
        self.gone()
        by_place: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for row in [*self.batches, *(row for row in self.gaps if row["to"] is not None)]:
            by_place.setdefault((row["topic_id"], row["partition"]), []).append(row)
        for (topic_id, number), rows in by_place.items():
            _, topic = self.kafka.of_id(topic_id)
            at = min(row["from"] for row in rows)
            for row in sorted(rows, key=lambda row: (row["from"], row["to"])):
                self.holds(row["from"] == at, f"{topic_id}/{number}: {at} is followed by {row['from']}")
                at = row["to"]
                if row.get("batch") == CLAIM:
                    self.holds(row["from"] == row["to"] and not row["records"], f"{row} covers offsets")
                elif "batch" in row:
                    self.batch(row, topic)
                else:
                    self.holds(topic.partitions[number].start >= row["to"], f"{topic_id}/{number}: {row} is no loss")
                    self.rows_of_gap(row)
        for place in there:
            self.holds(any(covers(row, place) for row in [*self.batches, *self.gaps]), f"{place} is in no range")
        for name, topic in self.kafka.topics.items():
            for number, partition in enumerate(topic.partitions):
                rows = by_place.get((topic.id, number), [])
                end = max((row["to"] for row in rows), default=partition.start)
                self.holds(end == partition.end, f"{name}/{number}: landed to {end} of {partition.end}")
        return self.found

    def whole(self) -> bool:
        """Whether all is there again, or listed as erased, that somebody has deleted."""
        return all(place in self.there[name] or (name, place) in self.listed for name, place in self.lost)

    def rows_of_gap(self, gap: Mapping[str, Any]) -> None:
        """A gap says how many rows it has nevertheless; what was erased counts, and what somebody deleted may."""
        inside = {(name, at) for name in COVERED for at in self.landed[name] if covers(gap, at)}
        there = {(name, at) for name, at in inside if at in self.there[name]} | inside & {*self.listed}
        self.holds(len(there) <= gap["rows"] <= len(inside), f"{gap} has {len(there)} of {len(inside)} rows")

    def holds(self, truth: bool, what: str) -> None:
        if not truth:
            self.found.append(what)

    def once(self, places: list[Any], what: str) -> None:
        twice = [place for place, count in Counter(places).items() if count > 1]
        self.holds(not twice, f"{what}: {twice[:5]}")

    def no_event_twice(self) -> None:
        times: dict[str, list[int]] = {}
        for row in self.tables[EVENTS_TABLE].rows:
            times.setdefault(row["event_id"], []).append(row["received_time"])
        for name, found in times.items():
            found.sort()
            near = any(later - earlier <= HORIZON * 1000 for earlier, later in itertools.pairwise(found))
            self.holds(not near, f"the event {name} landed twice within the horizon")

    def gone(self) -> None:
        """Whatever is missing was dropped with its day, or erased, by a transaction that says so; and nothing else stayed."""
        self.once(self.listed, "erased twice")
        erased = set(self.listed)
        for name, table in self.tables.items():
            kept_from = self.retained(name, table)
            there = self.there[name]
            for place, row in self.landed[name].items():
                if (name, place) in erased or (name != DUPLICATES and row.get("event_id") in self.listed_at):
                    self.holds(place not in there, f"{name}: {place} was erased and is there")
                elif row[DAY] >= kept_from and not ((name, place) in self.lost and self.beyond_replay(name, place)):
                    self.holds(place in there, f"{name}: {place} is missing, of {row[DAY]}, and {kept_from} is kept")

        for change in self.tables[EVENTS_TABLE].changes:
            for event in change.rows:
                late = self.listed_at.get(event["event_id"], change.at) < self.began.get(change.version, 0)
                self.holds(not late, f"the event {event['event_id']} was erased and landed again")

    def beyond_replay(self, name: str, place: Place) -> bool:
        """Whether a replay leaves a lost row as it is: it cannot go back to it, or the event is there from another place."""
        if (name, place) in self.left:
            return True
        event_id = self.landed[name][place].get("event_id")
        return any(row["event_id"] == event_id for row in self.tables[EVENTS_TABLE].rows)

    def retained(self, name: str, table: Table) -> str:
        """The first day that is kept, by the transactions: each must have been due, by a clock that is right."""
        first = ""
        for change in table.changes:
            if change.app == RETAINED_APP:
                day = _1970 + timedelta(days=change.version)
                today = datetime.fromtimestamp(change.at + TOLERANCE, UTC).date()
                due = self.days and day <= today - timedelta(days=self.days)
                self.holds(bool(due), f"{name}: {day} is kept of {self.days} days, at {today}")
                first = max(first, day.isoformat())
        return first

    def batch(self, row: dict[str, Any], topic: Topic) -> None:
        """The line of one batch and partition: its counts, and each of its records."""
        number = row["partition"]
        records = [each for each in topic.partitions[number].records if row["from"] <= each.offset < row["to"]]
        what = f"{topic.id}/{number} {row['from']} to {row['to']}"
        self.holds(row["records"] == len(records), f"{what}: {row['records']} records of {len(records)}")
        events, rejects, left_out = (self.landed[name] for name in COVERED)
        ids = {event["event_id"] for event in events.values()}
        for record in records:
            place = topic.id, number, record.offset
            if place in rejects:
                self.holds(record.id == "", f"{what}: {record} is in quarantine")
            elif place in events:
                self.holds(events[place]["event_id"] == record.id != "", f"{what}: {record} landed as {events[place]}")
            else:
                self.holds(record.id in ids and record.id != "", f"{what}: {record} is lost")
                said = left_out.get(place, {}).get("event_id")
                self.holds(said == record.id, f"{what}: {record} was left out as {said}")
