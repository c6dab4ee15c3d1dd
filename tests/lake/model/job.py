"""A run of the landing job: what it decides is the product's own code, what it reads and writes is in memory.

Replaced are Spark's frames, Delta's writer, Hadoop's file systems, Spark's streaming engine (`Run._query`: a batch's offsets are
written before it, its commit after it), decoding, and the index of ids.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest import mock

from headrace_lake.commands import erase, replay, replay_rows
from headrace_lake.dedup import lookup
from headrace_lake.dedup.index import DUPLICATE, DedupIndex, IndexState
from headrace_lake.kafka import gaps, start, unlanded
from headrace_lake.kafka.checkpoint import Range, of_epoch
from headrace_lake.kafka.claim import Claim
from headrace_lake.kafka.epoch import Epoch
from headrace_lake.kafka.gaps import Loss
from headrace_lake.kafka.source import TopicInfo
from headrace_lake.kafka.start import Position
from headrace_lake.landing import landing, landing_events, quarantine
from headrace_lake.landing.landing import BatchResult, Landing
from headrace_lake.landing.landing_events import EventsLanding
from headrace_lake.rows import decode
from headrace_lake.rows.decode import Topics
from headrace_lake.spark.halt import HaltError
from headrace_lake.tables import erasures, layout, transaction_log
from headrace_lake.tables import fence as fences
from headrace_lake.tables.erasures import ERASED
from headrace_lake.tables.fence import Fence, transaction
from headrace_lake.tables.layout import BATCHES, DAY, DUPLICATES, GAPS, KEY
from headrace_lake.tables.layout import EVENTS as EVENTS_TABLE
from headrace_lake.tables.layout import QUARANTINE as QUARANTINE_TABLE
from headrace_lake.upkeep import maintenance, retention
from headrace_lake.upkeep.clocks import ClockGuard
from headrace_lake.upkeep.maintenance import Maintenance
from headrace_lake.upkeep.merging import compaction
from pyspark.errors import PySparkException

from tests.lake.model.frames import CONDITIONS, Expression, Frame, Functions, Observed, Rows, measured
from tests.lake.model.session import Appender, Spark, Stored, altered, merged
from tests.lake.model.stage import Process
from tests.lake.model.tables import ROW_BYTES, Disk
from tests.lake.model.topics import EVENTS, QUARANTINE, Brokers, Kafka

HORIZON = 600.0
"""Seconds within which the same event is recognised (`LAKE__DEDUP_HORIZON`)."""
SLACK = 60.0
"""Seconds by which a record may be late (`KAFKA__ACK_DEADLINE`)."""

TABLES = (BATCHES, EVENTS_TABLE, QUARANTINE_TABLE, DUPLICATES, GAPS)
COLUMNS = dict.fromkeys((*KEY, "topic", "event_id", "protocol", "received_time", "landed_at", DAY), "string")
"""Those of the events table that the model fills."""
CONDITIONS |= {
    replay_rows.WANTED: lambda row: row[replay_rows.WANTED],
    landing_events._WANTED: lambda row: row["event_id"] != "" and not row[DUPLICATE],
    landing_events._SOUND: lambda row: row["event_id"] != "",
    lookup.TIME: lambda row: row["received_time"],
}


class DataLossError(PySparkException):
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
        self.retention_days = 0
        self.began: dict[tuple[str, int], float] = {}
        """(lake, transaction version) -> when a batch began first."""
        self.lost: defaultdict[str, set[tuple[str, Any]]] = defaultdict(set)
        """Lake -> (table, place) of rows that somebody deleted."""
        self.beside: Callable[[Callable[[], None]], Process]
        """Begins what a job does besides landing: it ends with the job's process."""

    def now(self) -> float:
        """The job's own clock."""
        return self.clock + self.ahead

    def make_lake(self, path: str) -> None:
        for name in TABLES:
            self.disk.make(f"{path}/{name}", COLUMNS if name == EVENTS_TABLE else None)

    def settings(self, lake: str) -> Any:
        """Those of a job, and of the commands."""
        own = SimpleNamespace(
            path=lake, checkpoint=f"{lake}-checkpoint", horizon=HORIZON, batch_records=20,
        )  # fmt: skip
        return SimpleNamespace(lake=own, kafka=SimpleNamespace(events_topic=EVENTS, quarantine_topic=QUARANTINE))

    def brokers(self) -> Any:
        return Brokers(self.kafka, self.step, lambda: int(self.clock * 1000), lambda: self.steps)

    def records(self, ranges: Iterable[Range], ids: Mapping[str, str] | None = None) -> Frame:
        """The records of `ranges`, as Spark reads them: each time it is asked, from Kafka. `ids`: those of a stream's topics."""
        wanted = list(ranges)

        def read() -> Rows:
            self.step()
            rows: Rows = []
            for name, number, first, end in wanted:
                topic = self.kafka.topics.get(name)
                if (
                    topic is None
                    or (ids is not None and topic.id != ids[name])
                    or number >= len(topic.partitions)  # recreated with fewer
                    or first < topic.partitions[number].start
                ):
                    raise DataLossError(message=f"{name}: some data may have been lost")
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
        clock = SimpleNamespace(time=self.now, monotonic=lambda: self.clock)
        moment = SimpleNamespace(
            now=lambda _: datetime.fromtimestamp(self.now(), UTC), fromisoformat=datetime.fromisoformat
        )
        replaced: list[tuple[Any, str, Any]] = [
            *((module, "Storage", lambda _: self.disk) for module in (fences, erasures, erase, maintenance)),
            *((module, "Appender", Appender) for module in (fences, erase)),
            (replay, "Storage", Stored),
            (replay, "location", str),
            *((module, "time", clock) for module in (transaction_log, maintenance, retention, replay)),
            (layout, "create", lambda *_, **__: None),
            (replay, "Brokers", lambda *_: self.brokers()),
            (replay, "condition", lines_to_replay),
            (replay, "range_options", lambda _, ranges: {"ranges": [Range(*at, *pair) for at, pair in ranges.items()]}),
            (replay_rows, "without_resends", without_resends),
            (maintenance.TimeBudget.__init__, "__defaults__", (clock.monotonic,)),
            (erasures, "create", lambda _, lake: self.disk.make(f"{lake}/{erasures.ERASURES}")),
            (retention, "set_properties", altered),
            (compaction, "stepwise", lambda _: True),
            (compaction, "by_arrow", merged),
            (start, "live_rows", lambda spark, table, _: spark.read.format("delta").load(table)),
            (gaps, "rows", self.gap_rows),
            (unlanded, "_now", lambda: int(self.now() * 1000)),
            (unlanded, "_first_times", self.first_times),
            (retention, "cancelled_if", lambda *_: contextlib.nullcontext()),
            (landing, "gathered", lambda records, _: records),
            *((module, "datetime", moment) for module in (landing, replay, start)),
            *((module, "Observation", Observed) for module in (landing, landing_events)),
            (landing_events, "selected", lambda rows, *texts: rows if "*" in texts else rows.select(*texts)),
            (landing_events, "_measures", lambda **_: [measure_events]),
            (landing_events, "counts", Counter),
            (landing, "counts_of", Counter),
            (quarantine, "keyed_counts", functions.keyed),
            (quarantine, "listed", left_out),
            *((decode, name, decoded) for name, decoded in DECODED.items()),
            *((module, "sf", functions) for module in SPOKEN),
        ]
        with contextlib.ExitStack() as stack:
            for where, name, instead in replaced:
                stack.enter_context(mock.patch.object(where, name, instead))
            yield

    # The product's queries

    def first_times(self, _: Any, __: Any, ranges: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        topic = self.kafka.topics[EVENTS]
        ids = {EVENTS: topic.id}
        rows = self.records((Range(EVENTS, number, *limits) for number, limits in ranges.items()), ids).read()
        return {row["partition"]: row["received_time"] for row in reversed(rows)}

    def gap_rows(self, spark: Any, lake: str, losses: Iterable[Loss], epoch: int) -> Frame:
        return Frame(
            lambda: [
                {
                    "reason": loss.reason,
                    "topic": loss.topic,
                    "topic_id": loss.topic_id,
                    "partition": loss.partition,
                    "from": loss.start,
                    "to": loss.end,
                    "rows": gaps._left_in(spark, lake, loss),
                    "epoch": epoch,
                }
                for loss in losses
            ]
        )


def events(records: Frame, topics: Topics, landed_at: datetime) -> Frame:
    """In place of `decode.events`: a record without an id has a fault."""
    return _landed(records, landed_at, lambda row: row["topic"] == topics.events, protocol="forward")


def rejects(records: Frame, topics: Topics, landed_at: datetime) -> Frame:
    """In place of `decode.rejects`."""
    return _landed(records, landed_at, lambda row: row["topic"] == topics.quarantine, id="")


def faults(records: Frame, topics: Topics, landed_at: datetime) -> Frame:
    """In place of `decode.faults`."""
    return _landed(records, landed_at, lambda row: row["topic"] == topics.events and not row["event_id"], id="")


def _landed(records: Frame, landed_at: datetime, wanted: Callable[[Any], bool], **more: str) -> Frame:
    own = {"landed_at": landed_at, DAY: landed_at.date().isoformat(), **more}
    return Frame(lambda: [{**row, **own} for row in records.read() if wanted(row)], columns=[*COLUMNS, *more])


def lines_to_replay(
    _: object, topics: Mapping[str, TopicInfo], __: object, starts: Mapping[Any, int], ___: object
) -> Any:
    """In place of `replay.condition`: the lines of `batches` from `starts` on."""

    def wanted(row: Mapping[str, Any]) -> bool:
        start = starts.get((row["topic"], row["partition"]))
        return start is not None and row["topic_id"] == topics[row["topic"]].id and bool(row["to"] > start)

    return Expression(wanted)


def without_resends(spark: Spark, lake: str, given: Frame, horizon: float) -> Frame:
    """In place of `replay_rows.without_resends`."""

    def place(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in ("received_time", *KEY))

    def read() -> Rows:
        rows, there = given.read(), spark.load(f"{lake}/{EVENTS_TABLE}").read()
        marked = []
        for row in rows:
            others = [*there, *(each for each in rows if place(each) < place(row))]
            near = (
                each["event_id"] == row["event_id"]
                and abs(each["received_time"] - row["received_time"]) <= horizon * 1000
                for each in others
            )
            marked.append({**row, replay_rows.WANTED: not any(near)})
        return marked

    return Frame(read, columns=[*given.columns, replay_rows.WANTED])


DECODED = {"events": events, "rejects": rejects, "faults": faults}
SPOKEN = (
    start, landing, landing_events, quarantine, erasures, erase, replay, replay_rows
)  # fmt: skip
"""Modules that speak to Spark's functions."""


def measure_events(rows: Rows) -> dict[str, Any]:
    """What the product observes while it writes events; see `landing_events._measured`."""
    again = left_out(Expression(lambda row: row["event_id"] and row[DUPLICATE]), "event_id")
    return {
        "records": Counter(row["partition"] for row in rows),
        "ages": Counter(0 for row in rows if row["event_id"] and not row[DUPLICATE]),
        "faulty": sum(not row["event_id"] for row in rows),
        **measured(rows, [again]),
        "looked_up": 0, "newest": max((row["received_time"] for row in rows), default=None),
        "erased": sum(bool(row.get(ERASED) and row["event_id"]) for row in rows),
    }  # fmt: skip


def left_out(which: Expression, column: str) -> Expression:
    """In place of `left_out.listed`."""

    def over(rows: Rows) -> str:
        return json.dumps([[*(row[name] for name in KEY), row[column], ""] for row in rows if which.value(row)])

    return Expression(name="left out", over=over)


class Ids(DedupIndex):
    """An index that forgets nothing, and asks as `RecentIds` does: a place is no duplicate of itself."""

    def __init__(self, world: World, lake: str, topic_id: str) -> None:
        self._world = world
        self._lake = lake
        self._topic_id = topic_id
        self._known: dict[str, tuple[int, Any]] = {}

    def add_landed(self, since: int) -> None:
        self._world.step()
        for row in self._world.disk.table(f"{self._lake}/{EVENTS_TABLE}").rows:
            if row["received_time"] >= since:
                here = row["topic_id"] == self._topic_id
                place = (row["partition"], row["offset"]) if here else None
                self._known[row["event_id"]] = row["received_time"], place

    def deduplicate(self, decoded: Any, write: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
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
        return IndexState(len(self._known), 0, None)

    def close(self) -> None:
        pass


class Ignored:
    """A log, or metrics."""

    def __getattr__(self, _: str) -> Ignored:
        return self

    def __call__(self, *_: Any, **__: Any) -> Ignored:
        return self


class Run:
    """One start of the job. Ends when Kafka has no more, if `once`; otherwise it goes on for ever."""

    def __init__(self, world: World, lake: str, checkpoint: str, *, accept_loss: bool, most: int) -> None:
        self._world = world
        self._lake = lake
        self._most = most
        self._accept_loss = accept_loss
        self._root = checkpoint
        self._checkpoint: Any = None
        self._brokers: Any = world.brokers()
        self._spark: Any = Spark(world)
        self._guard = ClockGuard(self._brokers, Ignored(), Ignored(), world.now)  # type: ignore[arg-type]
        self._upkeep: Process | None = None

    def land(self) -> None:
        """As `Job._land_with`. Raises `HaltError`, or `KafkaAwayError`."""
        topics = self._brokers.topics((EVENTS, QUARANTINE))
        fence = Fence(self._spark, self._lake)
        fence.epoch()
        claiming = Claim(
            self._spark, self._lake, self._brokers,
            accept_loss=self._accept_loss, log=Ignored(),  # type: ignore[arg-type]
        )  # fmt: skip
        epoch, found = claiming.begin(fence, topics)
        self._checkpoint = of_epoch(self._world.disk, self._root, epoch)  # type: ignore[arg-type]
        known = Topics(EVENTS, QUARANTINE, {name: topic.id for name, topic in topics.items()})
        try:
            this = Epoch(self._spark, self._lake, epoch, known, fence, found, Ignored())  # type: ignore[arg-type]
            events = self._events(this, topics)
        except DataLossError as error:
            raise HaltError("Spark: data were lost") from error
        job = Landing(
            this, checkpoint=self._checkpoint, brokers=self._brokers, events=events,
            stopping=lambda: False,
            on_landed=lambda result: self._landed(result, epoch),
        )  # fmt: skip
        try:
            self._query(job, epoch, found, topics)
        except DataLossError as error:
            fence.check_epoch(epoch)
            losses = claiming.losses(topics)
            raise (gaps.refuse(losses) if losses else HaltError("Spark: data were lost")) from error

    def _landed(self, result: BatchResult, epoch: int) -> None:
        """As `Upkeep.landed`; maintenance runs beside what follows."""
        self._guard.landed(result.newest)
        if self._world.chance() < 0.5 and (self._upkeep is None or self._upkeep.dead):
            self._upkeep = self._world.beside(lambda: self.maintain(epoch))

    def maintain(self, epoch: int) -> None:
        """Maintenance that is due, of the job that holds `epoch`."""
        settings: Any = SimpleNamespace(
            maintenance_share=1.0, retention_days=self._world.retention_days, file_bytes=50 * ROW_BYTES, log_age=3_600,
            vacuum_every=86_400, vacuum_age=86_400,
        )  # fmt: skip
        upkeep = Maintenance(
            self._spark, self._lake, settings, epoch=epoch, metrics=Ignored(), log=Ignored(), stopping=lambda: False,  # type: ignore[arg-type]
            agree=self._guard.agree,
        )  # fmt: skip
        upkeep.begin()
        upkeep.run_due(at_once=True)

    def _events(self, epoch: Epoch, topics: Mapping[str, TopicInfo]) -> EventsLanding:
        """As `Job._land_with` and `Job._ids_since`."""
        pairs = [(EVENTS, number) for number in range(topics[EVENTS].partitions)]
        first = self._brokers.offsets(pairs, earliest=True)
        following = {pair[1]: max(epoch.position.landed.get(pair, offset), offset) for pair, offset in first.items()}
        oldest = unlanded.oldest(self._spark, self._brokers, SimpleNamespace(events_topic=EVENTS), following)  # type: ignore[arg-type]
        events = EventsLanding(epoch, index=Ids(self._world, self._lake, epoch.topics.ids[EVENTS]), horizon=HORIZON)
        events.rebuild_index(oldest - round((HORIZON + SLACK) * 1000))
        return events

    def _query(self, job: Landing, epoch: int, found: Position, topics: Mapping[str, TopicInfo]) -> None:
        """Spark's streaming query over both topics, `AvailableNow` without its fixed end."""
        firsts = {
            name: {number: at if at >= 0 else self._first(name, int(number)) for number, at in starts.items()}
            for name, starts in found.starting(topics).items()
        }
        self._write("sources/0/0", f"v1\n{json.dumps(firsts)}")
        ids = {name: topic.id for name, topic in topics.items()}
        for batch in itertools.count():
            if not self._plan(batch):
                return
            self._world.began.setdefault((self._lake, transaction(epoch, batch)), self._world.clock)
            job(self._world.records(self._checkpoint.ranges(batch), ids), batch)  # type: ignore[arg-type]
            self._write(f"commits/{batch}", "{}")

    def _write(self, name: str, text: str) -> None:
        self._world.disk.write(f"{self._checkpoint.path}/{name}", text)

    def _first(self, name: str, number: int) -> int:
        return int(self._brokers.offsets([(name, number)], earliest=True)[name, number])

    def _plan(self, batch: int) -> bool:
        """Writes the offsets of the next batch; False if there is nothing new."""
        begins = self._checkpoint._ends(batch - 1)
        ends: dict[str, dict[str, int]] = {}
        for name in (EVENTS, QUARANTINE):
            pairs = [(name, number) for number in range(self._brokers.topics((name,))[name].partitions)]
            for (_, number), end in self._brokers.offsets(pairs, earliest=False).items():
                began = begins.get((name, number), 0)
                if end < began:
                    raise DataLossError(message=f"{name}: some data may have been lost")
                ends.setdefault(name, {})[str(number)] = min(end, began + self._most)
        moved = any(
            end > begins.get((name, int(number)), 0) for name, each in ends.items() for number, end in each.items()
        )
        if moved:
            self._write(f"offsets/{batch}", f"v1\n{{}}\n{json.dumps(ends)}")
        return moved
