"""A run of the landing job: what it decides is the product's own code, what it reads and writes is in memory.

Replaced are Spark's frames, Delta's writer, Hadoop's file systems, Spark's streaming engine (`Run._query`: a batch's offsets are
written before it, its commit after it) and the parts that only read rows: decoding, the index of ids, quarantine.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock
from zlib import crc32

from headrace_common.record.contract import GapReason
from headrace_lake.configuration.policy import Policies
from headrace_lake.dedup.index import DUPLICATE, DedupIndex, IndexState
from headrace_lake.kafka import gaps, start, watermarks
from headrace_lake.kafka.checkpoint import Checkpoint, Range
from headrace_lake.kafka.claim import Claim
from headrace_lake.kafka.gaps import Loss
from headrace_lake.kafka.source import TopicInfo
from headrace_lake.kafka.start import Position
from headrace_lake.landing import landing, landing_events
from headrace_lake.landing.digests import Slots
from headrace_lake.landing.landing import BatchResult, Landing
from headrace_lake.landing.landing_events import EventsLanding
from headrace_lake.landing.routes import RouteCounts
from headrace_lake.rows.decode import Topics
from headrace_lake.spark.halt import HaltError
from headrace_lake.tables import fence as fences
from headrace_lake.tables import transaction_log
from headrace_lake.tables.digest import KEY, NOTHING, Covered, Sums, added
from headrace_lake.tables.fence import Fence
from headrace_lake.tables.layout import BATCHES, GAPS
from headrace_lake.tables.layout import EVENTS as EVENTS_TABLE
from headrace_lake.tables.layout import QUARANTINE as QUARANTINE_TABLE
from headrace_lake.tables.shape import Shape
from pyspark.sql import Row

from tests.lake.model.stage import Killed
from tests.lake.model.tables import CONDITIONS, Disk, Frame, Functions, Observed, Rows, Table, places
from tests.lake.model.topics import EVENTS, QUARANTINE, Brokers, Kafka

HORIZON = 600.0
"""Seconds within which the same event is recognised (`LAKE__DEDUP_HORIZON`)."""
SLACK = 60.0
"""Seconds by which a record may be late (`KAFKA__ACK_DEADLINE`)."""

TABLES = (BATCHES, EVENTS_TABLE, QUARANTINE_TABLE, GAPS)
CONDITIONS |= {
    landing_events._WANTED: lambda row: row["event_id"] != "" and not row[DUPLICATE],
    landing_events._SOUND: lambda row: row["event_id"] != "",
}


class DataLossError(Exception):
    """Spark's engine finds that Kafka does not hold the offsets of a batch."""


class World:
    """All that outlives a process. `chance` decides what a kill leaves: a write may still be committed after it."""

    def __init__(self, kafka: Kafka, disk: Disk, step: Callable[[], None], chance: Callable[[], float]) -> None:
        self.kafka = kafka
        self.disk = disk
        self.step = step
        self.chance = chance
        self.clock = 1_800_000_000.0
        """Unix seconds of Kafka's hosts."""
        self.ahead = 0.0
        """By how many seconds the job's own clock is ahead."""
        self.orphans: list[Callable[[], None]] = []
        """Writes of JVMs whose driver is dead: they may be committed at any time, or never."""
        self.steps = 0

    def now(self) -> float:
        """The job's own clock."""
        return self.clock + self.ahead

    def make_lake(self, path: str) -> None:
        for name in TABLES:
            table = Table(f"{path}/{name}")
            table.alter({})
            self.disk.tables[f"{path}/{name}"] = table

    def records(self, ranges: Iterable[Range], ids: Mapping[str, str]) -> Frame:
        """The records of `ranges`, as Spark reads them: each time it is asked, from Kafka."""
        wanted = list(ranges)

        def read() -> Rows:
            self.step()
            rows: Rows = []
            for name, number, first, end in wanted:
                topic = self.kafka.topics.get(name)
                if topic is None or topic.id != ids[name] or first < topic.partitions[number].start:
                    raise DataLossError(name)
                rows += [
                    {"topic": name, "topic_id": topic.id, "partition": number, "offset": record.offset, "event_id": record.id,
                     "received_time": record.time}
                    for record in topic.partitions[number].records
                    if first <= record.offset < end
                ]  # fmt: skip
            return rows

        return Frame(read)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """What is replaced in the product."""
        functions = Functions()
        clock = SimpleNamespace(time=self.now, monotonic=self.now)
        moment = SimpleNamespace(now=lambda _: datetime.fromtimestamp(self.now(), UTC))
        replaced: list[tuple[Any, str, Any]] = [
            (fences, "Storage", lambda _: self.disk),
            (fences, "Appender", lambda *_: Appender(self)),
            (transaction_log, "time", clock),
            (start, "_read", lambda _, lake, __: Totals(self.disk, lake)),
            (start, "_without_number", lambda *_: 0),
            (start, "landed_already", self.landed_already),
            (landing, "landed_already", self.landed_already),
            (landing_events, "landed_already", self.landed_already),
            (start, "set_properties", self.set_properties),
            (gaps, "set_properties", self.set_properties),
            (gaps, "rows", self.gap_rows),
            (watermarks, "_now", lambda: int(self.now() * 1000)),
            (watermarks, "_first_times", self.first_times),
            (landing, "gathered", lambda records, _: records),
            (landing, "datetime", moment),
            (landing, "Quarantine", Rejects),
            (landing, "Slots", ModelSlots),
            (landing_events, "Slots", ModelSlots),
            (landing, "Observation", Observed),
            (landing_events, "Observation", Observed),
            (landing_events, "ErasedIds", lambda *_: Quiet()),
            (landing_events, "_measures", lambda _, **__: [measure_events]),
            (landing_events, "counts", Counter),
            (landing_events.decode, "events", events),
            (EventsLanding, "_in_table", lambda landing, ranges: self.in_table(landing, ranges)),
            *((module, "sf", functions) for module in (start, landing, landing_events)),
        ]
        with contextlib.ExitStack() as stack:
            for where, name, instead in replaced:
                stack.enter_context(mock.patch.object(where, name, instead))
            yield

    # The product's queries

    def landed_already(self, _: Any, lake: str, table: str, starts: Mapping[Any, int], ids: Mapping[str, str]) -> Frame:
        first = {(ids[name], number): offset for (name, number), offset in starts.items()}

        def read() -> Rows:
            rows = self.disk.table(f"{lake}/{table}").rows
            return places(
                row
                for row in rows
                if (found := first.get((row["topic_id"], row["partition"]))) is not None and row["offset"] >= found
            )

        return Frame(read)

    def in_table(self, landing: EventsLanding, ranges: list[Range]) -> list[tuple[int, str, int, int]]:
        found = []
        rows = self.disk.table(f"{landing._lake}/{EVENTS_TABLE}").rows
        for name, number, first, end in ranges:
            topic_id = landing._topics.ids[name]
            here = [
                row
                for row in rows
                if (row["topic_id"], row["partition"]) == (topic_id, number) and first <= row["offset"] < end
            ]
            if here:
                found.append((number, "forward", len(here), int(self.now() * 1e6)))
        return found

    def first_times(self, _: Any, __: Any, ranges: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        topic = self.kafka.topics[EVENTS]
        ids = {EVENTS: topic.id}
        rows = self.records((Range(EVENTS, number, *limits) for number, limits in ranges.items()), ids).read()
        return {row["partition"]: row["received_time"] for row in reversed(rows)}

    def set_properties(self, _: Any, path: str, properties: Mapping[str, str]) -> None:
        self.step()
        self.disk.table(path).alter(properties)
        self.step()

    def gap_rows(self, _: Any, lake: str, losses: Iterable[Loss], epoch: int) -> Frame:
        return Frame(
            lambda: [
                {
                    "reason": loss.reason,
                    "topic": loss.topic,
                    "topic_id": loss.topic_id,
                    "partition": loss.partition,
                    "from": loss.start,
                    "to": loss.end,
                    "epoch": epoch,
                }
                for loss in losses
            ]
        )


class Appender:
    """Delta's writer, in the steps that the product's `Appender` takes."""

    def __init__(self, world: World) -> None:
        self._world = world

    def append(self, path: str, rows: Frame, version: int, token: str, latest: Callable[[], int]) -> None:
        world, table = self._world, self._world.disk.table(path)
        since = len(table.transactions)
        world.step()
        if latest() >= version:
            return
        data = rows.read()
        commit = partial(table.append, data, since, version, token)
        try:
            world.step()
        except Killed:
            if world.chance() < 0.5:
                world.orphans.append(commit)
            raise
        commit()
        if rows.observed is not None:
            rows.observed(data)
        world.step()


class Totals:
    """What `start.coverage` asks of `batches` and of the accepted gaps."""

    def __init__(self, disk: Disk, lake: str) -> None:
        self._disk = disk
        self._lake = lake

    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: self

    def collect(self) -> list[Row]:
        by_place: dict[tuple[Any, ...], Rows] = {}
        for name in (BATCHES, GAPS):
            for row in self._disk.table(f"{self._lake}/{name}").rows:
                reason = str(row["reason"]) if name == GAPS else ""
                if row["to"] is not None or reason == GapReason.RECREATED:
                    place = row["topic"], row["topic_id"], row["partition"], reason
                    by_place.setdefault(place, []).append(row)
        return [
            Row(
                topic=topic, topic_id=topic_id, partition=number, reason=reason,
                start=min((row["from"] for row in rows), default=None),
                end=max((row["to"] for row in rows if row["to"] is not None), default=None),
                length=sum(row["to"] - row["from"] for row in rows if row["to"] is not None), rows=len(rows),
                number=max((row.get("number") or 0 for row in rows), default=None),
                events=sum(row.get("events", 0) for row in rows), quarantined=sum(row.get("quarantined", 0) for row in rows),
            )
            for (topic, topic_id, number, reason), rows in by_place.items()
        ]  # fmt: skip


def events(records: Frame, topics: Topics, landed_at: datetime, _: Shape) -> Frame:
    """In place of `decode.events`: a record without an id has a fault."""
    return Frame(lambda: [{**row, "landed_at": landed_at} for row in records.read() if row["topic"] == topics.events])


def measure_events(rows: Rows) -> dict[str, Any]:
    """What the product observes while it writes events; see `landing_events._measured`."""
    places = Counter(row["partition"] * 3 + (0 if not row["event_id"] else 2 if row[DUPLICATE] else 1) for row in rows)
    lately = [{"n": row["partition"], "t": row["received_time"]} for row in rows]
    return {
        "by_place": places, "by_protocol": {}, "by_age": {}, "looked_up": 0, "markers": 0, "lately": json.dumps(lately)
    }  # fmt: skip


class ModelSlots(Slots):
    """Sums of rows in memory."""

    def hashed(self, rows: Frame, covered: Covered, wanted: Any) -> Frame:  # type: ignore[override]
        holds = CONDITIONS[wanted] if isinstance(wanted, str) else wanted.value

        def read() -> Rows:
            return [{**row, "hash": hashed(row, covered) if holds(row) else NOTHING} for row in rows.read()]

        return Frame(read, rows.observed)

    def sums(self, topics: int = 1) -> list[Any]:
        def measure(rows: Rows) -> dict[str, Any]:
            found: dict[int, Sums | None] = dict.fromkeys(range(self.each * topics), NOTHING)
            for row in rows:
                slot = self.of(row["topic"], row["partition"])
                found[slot] = added(found[slot], row["hash"])
            return {"slots": list(found.values())}

        return [measure]

    def read(self, seen: Mapping[str, Any], topics: int = 1) -> list[Sums | None]:
        found: list[Sums | None] = seen["slots"]
        return found

    def there(self, spark: Any, lake: str, table: str, covered: Covered, ranges: Sequence[Range]) -> list[Sums | None]:
        found: dict[int, Sums | None] = dict.fromkeys(range(2 * self.each), NOTHING)
        for name, number, first, end in ranges:
            slot = self.of(name, number)
            for row in spark.load(f"{lake}/{table}").read():
                if (row["topic"], row["partition"]) == (name, number) and first <= row["offset"] < end:
                    found[slot] = added(found[slot], hashed(row, covered))
        return list(found.values())


def hashed(row: Mapping[str, Any], covered: Covered) -> Sums:
    """In place of the two hashes of a row; its place, and its id if the digest covers that."""
    named = "/".join(str(row[name]) for name in (*KEY, "event_id") if name in covered[0])
    return crc32(named.encode()), crc32(named[::-1].encode())


class Rejects:
    """In place of `Quarantine`: all records of its topic land, and those of the events topic that are no events."""

    wanted = Functions().lit(True)

    def __init__(self, spark: Any, lake: str, *, topics: Topics, policies: Policies, erased: Any) -> None:
        self._world: World = spark.world
        self._lake = lake
        self._topics = topics

    def rows(self, records: Frame, ranges: Iterable[Range], landed_at: datetime, *, faults: bool) -> Frame | None:
        if not faults and all(item.topic != self._topics.quarantine for item in ranges):
            return None
        return Frame(
            lambda: [
                {**row, "landed_at": landed_at}
                for row in records.read()
                if row["topic"] == self._topics.quarantine or (faults and not row["event_id"])
            ]
        )

    def check(self, *_: Any) -> None:
        pass

    def measures(self) -> list[Callable[[Rows], dict[str, Any]]]:
        return [lambda rows: {"places": Counter((row["topic"], row["partition"]) for row in rows)}]

    def measured(
        self, places: list[tuple[str, int]], seen: Mapping[str, Any]
    ) -> dict[tuple[str, int], tuple[int, int]]:
        return {place: (seen["places"][place], 0) for place in places}

    def by_reason(self, *_: Any) -> dict[str, int]:
        return {}

    def there(self, ranges: list[Range]) -> tuple[dict[tuple[str, int], int], datetime | None]:
        rows = self._world.disk.table(f"{self._lake}/{QUARANTINE_TABLE}").rows
        found: Counter[tuple[str, int]] = Counter()
        for name, number, first, end in ranges:
            topic_id = self._topics.ids[name]
            found[name, number] += sum(
                (row["topic_id"], row["partition"]) == (topic_id, number) and first <= row["offset"] < end
                for row in rows
            )
        return {place: count for place, count in found.items() if count}, None


class Ids(DedupIndex):
    """An index that forgets an id as soon as it may, and asks as `RecentIds` does: a place is no duplicate of itself."""

    def __init__(self, world: World, lake: str, topic_id: str) -> None:
        self._world = world
        self._lake = lake
        self._topic_id = topic_id
        self._known: dict[str, tuple[int, Any]] = {}

    def add_landed(self, since: int, inside: str = "true") -> None:
        self._world.step()
        for row in self._world.disk.table(f"{self._lake}/{EVENTS_TABLE}").rows:
            if row["received_time"] >= since:
                here = row["topic_id"] == self._topic_id
                place = (row["partition"], row["offset"]) if here else None
                self._known[row["event_id"]] = row["received_time"], place

    def expire(self, keep_from: int) -> None:
        self._known = {name: (time, place) for name, (time, place) in self._known.items() if time >= keep_from}

    def deduplicate(self, decoded: Frame, id_projection: Any, write: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        def asked() -> Rows:
            return [{**row, DUPLICATE: bool(row["event_id"]) and self._is_again(row)} for row in decoded.read()]

        return write(Frame(asked))

    def _is_again(self, row: Mapping[str, Any]) -> bool:
        place, time = (row["partition"], row["offset"]), row["received_time"]
        known = self._known.get(row["event_id"])
        if known is not None and abs(known[0] - time) <= HORIZON * 1000:
            return bool(known[1] != place)
        self._known[row["event_id"]] = time, place
        return False

    def state(self) -> IndexState:
        return IndexState(len(self._known), 0, 0, None)

    def close(self) -> None:
        pass


class Spark:
    """What the product asks of its session."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.read = self
        self.sparkContext = SimpleNamespace(setJobDescription=lambda _: None)

    def format(self, _: str) -> Spark:
        return self

    def load(self, path: str) -> Frame:
        def read() -> Rows:
            self.world.step()
            return list(self.world.disk.table(path).rows)

        return Frame(read)

    def sql(self, text: str) -> Frame:
        """The lines of `batches`, which the product writes as a constant."""
        found = re.search(r"from_json\('(.*?)', 'array<struct", text, re.DOTALL)
        assert found is not None
        rows = json.loads(found[1].replace("\\\\", "\\").replace("\\'", "'"))
        return Frame(lambda: rows)


class Quiet:
    """A log; the index of erased ids, of which there are none; the markers of gaps, of which there are none; no routes."""

    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: None

    def any(self) -> bool:
        return False

    def marked(self, rows: Frame, _: str) -> Frame:
        return rows

    def interrupted(self, _: int) -> bool:
        return False


class NoRoutes(Quiet):
    def land(self, *_: Any, **__: Any) -> RouteCounts:
        return RouteCounts()


class Run:
    """One start of the job. Ends when Kafka has no more, if `once`; otherwise it goes on for ever."""

    def __init__(self, world: World, lake: str, checkpoint: str, *, accept_loss: bool, most: int) -> None:
        self._world = world
        self._lake = lake
        self._most = most
        self._accept_loss = accept_loss
        self._checkpoint = Checkpoint(world.disk, checkpoint)  # type: ignore[arg-type]
        self._brokers: Any = Brokers(world.kafka, world.step, lambda: int(world.clock * 1000), lambda: world.steps)
        self._spark: Any = Spark(world)
        self.error: HaltError | None = None

    def land(self) -> None:
        """As `Job._land_with`. Raises `HaltError`, or `KafkaAwayError`."""
        topics = self._brokers.topics((EVENTS, QUARANTINE))
        fence = Fence(self._spark, self._lake)
        fence.epoch()
        claiming = Claim(
            self._spark, self._lake, self._checkpoint, self._brokers, accept_loss=self._accept_loss, log=Quiet()  # type: ignore[arg-type]
        )  # fmt: skip
        epoch, found = claiming.begin(fence, topics)
        known = Topics(EVENTS, QUARANTINE, {name: topic.id for name, topic in topics.items()})
        try:
            events = self._events(known, fence, found, topics)
        except DataLossError as error:
            raise HaltError("Spark: data were lost") from error
        events.rebuild_index()
        job = Landing(
            self._spark, self._lake, epoch=epoch, fence=fence, checkpoint=self._checkpoint, brokers=self._brokers,
            topics=known, position=found, policies=Policies({}), events=events, markers=Quiet(), routes=NoRoutes(),  # type: ignore[arg-type]
            log=Quiet(), stopping=lambda: False, on_landed=self._landed,  # type: ignore[arg-type]
        )  # fmt: skip
        try:
            self._query(job, found, topics)
        except DataLossError as error:
            losses = claiming.losses(topics, known.ids)
            raise (gaps.refuse(losses) if losses else HaltError("Spark: data were lost")) from error

    def _landed(self, _: BatchResult) -> None:
        pass

    def _events(self, known: Topics, fence: Fence, found: Position, topics: Mapping[str, TopicInfo]) -> EventsLanding:
        """As `Job._events_landing`."""
        pairs = [(EVENTS, number) for number in range(topics[EVENTS].partitions)]
        first = self._brokers.offsets(pairs, earliest=True)
        following = {pair[1]: max(found.landed.get(pair, offset), offset) for pair, offset in first.items()}
        kafka: Any = SimpleNamespace(events_topic=EVENTS)
        marks = watermarks.at_start(self._spark, self._brokers, kafka, following, self._newest)
        return EventsLanding(
            self._spark, self._lake, topics=known, fence=fence, position=found,
            index=Ids(self._world, self._lake, known.ids[EVENTS]), shape=Shape(), watermarks=marks, horizon=HORIZON,
            slack=SLACK, log=Quiet(),  # type: ignore[arg-type]
        )  # fmt: skip

    def _newest(self) -> int | None:
        return max(
            (row["received_time"] for row in self._world.disk.table(f"{self._lake}/{EVENTS_TABLE}").rows), default=None
        )

    def _query(self, job: Landing, found: Position, topics: Mapping[str, TopicInfo]) -> None:
        """Spark's streaming query over both topics, `AvailableNow` without its fixed end."""
        disk, path = self._world.disk, self._checkpoint.path
        if not disk.exists(f"{path}/sources/0/0"):
            firsts = {
                name: {number: at if at >= 0 else self._first(name, int(number)) for number, at in starts.items()}
                for name, starts in found.starting(topics).items()
            }
            self._write(f"{path}/sources/0/0", f"v1\n{json.dumps(firsts)}")
        batch = self._checkpoint.last_batch()
        if batch < 0 or self._checkpoint.committed(batch):
            batch += 1
        while True:
            if not disk.exists(f"{path}/offsets/{batch}") and not self._plan(batch):
                return
            ids = {name: topic.id for name, topic in topics.items()}
            job(self._world.records(self._checkpoint.ranges(batch), ids), batch)  # type: ignore[arg-type]
            self._write(f"{path}/commits/{batch}", "{}")
            batch += 1

    def _write(self, path: str, text: str) -> None:
        try:
            self._world.disk.write(path, text)
        except HaltError as error:
            raise HaltError("another job runs with this checkpoint: this one stops") from error

    def _first(self, name: str, number: int) -> int:
        return int(self._brokers.offsets([(name, number)], earliest=True)[name, number])

    def _plan(self, batch: int) -> bool:
        """Writes the offsets of the next batch; False if there is nothing new."""
        begins = self._checkpoint.ends(batch - 1)
        ends: dict[str, dict[str, int]] = {}
        for name in (EVENTS, QUARANTINE):
            pairs = [(name, number) for number in range(self._brokers.topics((name,))[name].partitions)]
            for (_, number), end in self._brokers.offsets(pairs, earliest=False).items():
                began = begins.get((name, number), 0)
                if end < began:
                    raise DataLossError(name)
                ends.setdefault(name, {})[str(number)] = min(end, began + self._most)
        moved = any(
            end > begins.get((name, int(number)), 0) for name, each in ends.items() for number, end in each.items()
        )
        if moved:
            self._write(f"{self._checkpoint.path}/offsets/{batch}", f"v1\n{{}}\n{json.dumps(ends)}")
        return moved
