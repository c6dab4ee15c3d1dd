"""A run of the landing job: what it decides is the product's own code, what it reads and writes is in memory.

Replaced are `Tables` and the executions of plans (`lists`), the logs of tables, and Spark's streaming engine (`Run._query`).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

from headrace_lake.commands.erase import Erase, ErasureRequest
from headrace_lake.commands.replay import go_back
from headrace_lake.kafka import gaps, start, unlanded
from headrace_lake.kafka.checkpoint import Range
from headrace_lake.kafka.claim import Claim
from headrace_lake.kafka.source import TopicInfo, TopicPartition
from headrace_lake.kafka.start import Position
from headrace_lake.landing import landing
from headrace_lake.landing.landing import BatchResult, Epoch, Landing
from headrace_lake.rows.decode import Topics
from headrace_lake.spark.halt import HaltError
from headrace_lake.tables import layout, transaction_log
from headrace_lake.tables.fence import Fence, transaction
from headrace_lake.tables.layout import BATCHES, DUPLICATES, GAPS
from headrace_lake.tables.layout import EVENTS as EVENTS_TABLE
from headrace_lake.tables.layout import QUARANTINE as QUARANTINE_TABLE
from headrace_lake.upkeep import maintenance, retention
from headrace_lake.upkeep.clocks import ClockGuard
from headrace_lake.upkeep.maintenance import Maintenance
from headrace_lake.upkeep.merging import compaction
from pyspark.errors import PySparkException

from tests.lake.model.lists import HORIZON, ErasureLists, Ids, Lists, OnLists, Place, merged
from tests.lake.model.stage import Process
from tests.lake.model.tables import ROW_BYTES, Disk, Rows
from tests.lake.model.topics import EVENTS, QUARANTINE, Brokers, Kafka

SLACK = 60.0
"""Seconds by which a record may be late (`KAFKA__ACK_DEADLINE`)."""

TABLES = (BATCHES, EVENTS_TABLE, QUARANTINE_TABLE, DUPLICATES, GAPS)


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
        self.began: dict[int, float] = {}
        """Transaction version -> when a batch began first."""
        self.lost: set[tuple[str, Any]] = set()
        """(table, place) of rows that somebody deleted."""
        self.left: set[tuple[str, Any]] = set()
        """Those of them to which the last replay cannot go back."""
        self.beside: Callable[[Callable[[], None]], Process]
        """Begins what a job does besides landing: it ends with the job's process."""

    def now(self) -> float:
        """The job's own clock."""
        return self.clock + self.ahead

    def make_lake(self) -> None:
        for name in TABLES:
            self.disk.make(name)

    def tables(self) -> Any:
        return Lists(self)

    def brokers(self) -> Any:
        return Brokers(self.kafka, self.step, lambda: self.steps)

    def records(self, ranges: Iterable[Range], ids: Mapping[str, str] | None = None) -> Callable[[], Rows]:
        """Reads the records of `ranges`, as Spark does: each time anew. `ids`: those of a stream's topics."""
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

        return read

    def first_times(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        ids = {EVENTS: self.kafka.topics[EVENTS].id}
        rows = self.records((Range(*pair, *limits) for pair, limits in ranges.items()), ids)()
        return {(row["topic"], row["partition"]): row["received_time"] for row in reversed(rows)}

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """What is replaced in the product: its clocks, and what makes or merges files."""
        clock = SimpleNamespace(time=self.now, monotonic=lambda: self.clock)
        moment = SimpleNamespace(
            now=lambda _: datetime.fromtimestamp(self.now(), UTC),
            fromisoformat=datetime.fromisoformat,
            fromtimestamp=datetime.fromtimestamp,
        )
        replaced: list[tuple[Any, str, Any]] = [
            *((module, "time", clock) for module in (transaction_log, maintenance, retention, unlanded)),
            *((module, "datetime", moment) for module in (landing, start, gaps)),
            (layout, "create", lambda *_, **__: None),
            (compaction, "replace", merged),
        ]
        with contextlib.ExitStack() as stack:
            for where, name, instead in replaced:
                stack.enter_context(mock.patch.object(where, name, instead))
            yield


class Ignored:
    """A log, or metrics."""

    def __getattr__(self, _: str) -> Ignored:
        return self

    def __call__(self, *_: Any, **__: Any) -> Ignored:
        return self


IGNORED: Any = Ignored()


def eraser(world: World, wanted: Set[Place]) -> Erase:
    """Erases the records at `wanted`; what earlier erasures have left, too."""
    tables = world.tables()
    request = ErasureRequest("some" if wanted else "", "", "")
    rows: Any = ErasureLists(tables, wanted)
    return Erase(tables, rows, request, apply=True, log=IGNORED)


def replay(world: World) -> int | None:
    """Makes `batches` forget all that Kafka holds; the next job lands it again."""
    since = datetime(1970, 1, 1, tzinfo=UTC)
    return go_back(world.tables(), world.brokers(), (EVENTS, QUARANTINE), since, IGNORED)


class Run:
    """One start of the job. Ends when Kafka has no more."""

    def __init__(self, world: World, *, accept_loss: bool, most: int) -> None:
        self._world = world
        self._tables = world.tables()
        self._most = most
        self._accept_loss = accept_loss
        self._planned: list[Range] = []
        self._brokers: Any = world.brokers()
        self._guard = ClockGuard(IGNORED, IGNORED, world.now, lambda: world.clock)
        self._upkeep: Process | None = None

    def land(self) -> None:
        """As `Job._land_with`. Raises `HaltError`, or `KafkaAwayError`."""
        topics = self._brokers.topics((EVENTS, QUARANTINE))
        fence = Fence(self._tables)
        fence.epoch()
        claiming = Claim(self._tables, self._brokers, accept_loss=self._accept_loss, log=IGNORED)
        epoch, found = claiming.begin(fence, topics)
        known = Topics(EVENTS, QUARANTINE, {name: topic.id for name, topic in topics.items()})
        try:
            execution = OnLists(self._tables, fence, known, self._ids(found, topics))
        except DataLossError as error:
            raise HaltError("Spark: data were lost") from error
        job = Landing(
            Epoch(epoch, known, fence, found, IGNORED), ranges=lambda _: self._planned, brokers=self._brokers,
            execution=execution, stopping=lambda: False, on_landed=partial(self._landed, epoch),
        )  # fmt: skip
        try:
            self._query(job, epoch, found, topics)
        except DataLossError as error:
            fence.check_epoch(epoch)
            claiming.check_losses(topics)
            raise HaltError("Spark: data were lost") from error

    def _landed(self, epoch: int, result: BatchResult) -> None:
        """As `Upkeep.landed`; maintenance runs beside what follows."""
        self._guard.landed(result.landed.newest)
        if self._world.chance() < 0.5 and (self._upkeep is None or self._upkeep.dead):
            self._upkeep = self._world.beside(lambda: self.maintain(epoch))

    def maintain(self, epoch: int) -> None:
        """Maintenance that is due, of the job that holds `epoch`."""
        settings: Any = SimpleNamespace(
            maintenance_share=1.0, retention_days=self._world.retention_days, file_bytes=50 * ROW_BYTES,
            vacuum_every=86_400, vacuum_age=86_400,
        )  # fmt: skip
        upkeep = Maintenance(
            self._tables, settings, epoch=epoch, metrics=IGNORED, log=IGNORED, stopping=lambda: False,
            agree=self._guard.agree,
        )  # fmt: skip
        upkeep.run_due(at_once=True)

    def _ids(self, found: Position, topics: Mapping[str, TopicInfo]) -> Ids:
        pairs = [(EVENTS, number) for number in range(topics[EVENTS].partitions)]
        oldest = unlanded.oldest_to_come(
            self._brokers, pairs, found.landed, self._tables.newest_event(), self._world.first_times
        )
        since = oldest - round((HORIZON + SLACK) * 1000)
        return Ids(self._tables, topics[EVENTS].id, since)

    def _query(self, job: Landing, epoch: int, found: Position, topics: Mapping[str, TopicInfo]) -> None:
        """Spark's streaming query over both topics, `AvailableNow` without its fixed end. Its checkpoint is scratch: no start
        reads what another has written there.
        """
        ids = {name: topic.id for name, topic in topics.items()}
        begins = {
            (name, int(number)): at for name, starts in found.starting(topics).items() for number, at in starts.items()
        }
        for batch in itertools.count():
            self._world.step()
            self._planned = self._plan(begins)
            if not self._planned:
                return
            begins |= {(each.topic, each.partition): each.end for each in self._planned}
            self._world.began.setdefault(transaction(epoch, batch), self._world.clock)
            job(self._world.records(self._planned, ids), batch)
            self._world.step()

    def _plan(self, begins: Mapping[TopicPartition, int]) -> list[Range]:
        """Returns the ranges of the next batch; none if there is nothing new."""
        planned: list[Range] = []
        for name in (EVENTS, QUARANTINE):
            pairs = [(name, number) for number in range(self._brokers.topics((name,))[name].partitions)]
            for (_, number), end in self._brokers.offsets(pairs, earliest=False).items():
                began = begins.get((name, number), 0)
                if end < began:
                    raise DataLossError(message=f"{name}: some data may have been lost")
                if end > began:
                    planned.append(Range(name, number, began, min(end, began + self._most)))
        return planned
