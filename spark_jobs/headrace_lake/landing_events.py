"""The events of a batch: judged, written and counted, so that `records = events + duplicates + quarantined + skipped`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

from headrace_common.event import Protocol
from headrace_common.log import Log
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from headrace_lake import decode, freshness, lookup, tables
from headrace_lake.checkpoint import Range
from headrace_lake.clocks import Clocks
from headrace_lake.decode import FAULT, GAP, LOOKED_UP, Topics
from headrace_lake.fence import Fence
from headrace_lake.memory import DUPLICATE, Memory, State
from headrace_lake.shape import Shape
from headrace_lake.start import Position, landed_already
from headrace_lake.tables import EVENTS
from headrace_lake.tally import Tally

_KEY: Final = ("topic_id", "partition", "offset")
_OTHER: Final = "other"
_SOUND: Final = f"{FAULT} is null"
_MARKER: Final = f"{_SOUND} and {GAP}"
_WANTED: Final = f"{_SOUND} and not {DUPLICATE}"
_PROTOCOLS: Final = ", ".join(f"'{name}'" for name in Protocol)


class Count(NamedTuple):
    """What a batch held of one partition."""

    records: int = 0
    sound: int = 0
    duplicates: int = 0
    skipped: int = 0


@dataclass(frozen=True)
class Remembered:
    """How well duplicates are told now."""

    state: State
    span: float
    """Seconds between two Kafka timestamps over which they are told: the horizon, or less when memory ran out."""
    short: bool
    """Whether it is less."""


@dataclass(frozen=True)
class EventCounts:
    """What a batch held of the events topic."""

    partitions: Mapping[int, Count]
    looked_up: int = 0
    duplicates: Mapping[str, int] = field(default_factory=dict)
    """By protocol; what is no protocol of ours is ``other``."""
    latest: Mapping[int, int] = field(default_factory=dict)
    """The latest Kafka timestamp of each partition, in ms."""
    markers: int = 0
    """Markers of Logjam gaps among them."""
    seen: Mapping[str, int] = field(default_factory=dict)
    """What was counted by `freshness.conditions` of what landed; empty when the batch was counted afterwards."""


class EventsLanding:
    """Lands the events of one batch after the other. `memory` tells duplicates; `clocks` are None when it never does."""

    def __init__(
        self,
        spark: SparkSession,
        lake: str,
        *,
        topics: Topics,
        fence: Fence,
        position: Position,
        memory: Memory,
        shape: Shape,
        clocks: Clocks | None,
        horizon: float,
        slack: float,
        log: Log,
    ) -> None:
        """`horizon` and `slack` in seconds: how long an id is kept after its time."""
        self._spark = spark
        self._lake = lake
        self._topics = topics
        self._fence = fence
        self._position = position
        self._memory = memory
        self._shape: Final = shape
        self._clocks = clocks
        self._horizon = horizon
        self._kept: Final = round((horizon + slack) * 1000)
        self._log = log
        self._faults = False  # in the last batch: then the next one is likely to have some, too

    def recall(self) -> None:
        """Fills the memory from the events table. Blocks for as long as it takes to read the ids of the horizon."""
        low_water = self._clocks.low_water() if self._clocks else None
        if low_water is None:
            return
        began = time.monotonic()
        self._memory.expire(low_water - self._kept)
        self._memory.rebuild(low_water - self._kept)
        seconds = round(time.monotonic() - began, 2)
        self._log.info("remembers what landed", ids=self._memory.state().ids, seconds=seconds)

    def plan(self) -> None:
        """A batch begins. Raises `KafkaAwayError`."""
        if self._clocks is None:
            return
        self._clocks.ask()
        low_water = self._clocks.low_water()
        if low_water is not None:
            self._memory.expire(low_water - self._kept)

    def land(self, records: DataFrame, ranges: list[Range], version: int, landed_at: datetime) -> EventCounts:
        """Writes the rows of the events table, once, and counts. `ranges`: those of the batch, of any topic."""
        mine = [item for item in ranges if item.topic == self._topics.events]
        if not mine:
            return EventCounts({})
        decoded = decode.events(records, self._topics, landed_at, self._shape)
        if self._fence.written(EVENTS, version):  # this batch, in a run that did not live to finish it
            return self._counted_again(decoded, mine)
        columns = tables.columns(EVENTS, self._shape)
        if any(start < self._position.strays.get((topic, number), 0) for topic, number, start, _ in mine):
            self._log.info("leaves out what an interrupted job has landed already", table=EVENTS)
            there = self._there(mine)

            def write_rest(judged: DataFrame) -> dict[str, Any]:
                rows = judged.where(_WANTED).select(*columns).join(there, list(_KEY), "left_anti").select(*columns)
                self._fence.write(EVENTS, rows, version)
                return {}

            self._memory.judged(decoded, None, write_rest)
            return self._counted_again(decoded, mine)

        def write(judged: DataFrame) -> dict[str, Any]:
            observation = Observation()
            tally = Tally(
                _conditions(item.partition for item in mine) | freshness.conditions(_WANTED),
                sum(item.end - item.start for item in mine),
            )
            rows = judged.observe(observation, *tally.columns(), *_latest(item.partition for item in mine))
            ours = self._fence.write(EVENTS, rows.where(_WANTED).select(*columns), version)
            if not ours:
                return {}  # nothing was observed: asking for it would wait for ever
            found = observation.get
            return found | tally.counts(found)

        glance = None if self._faults else partial(decode.glance, records, self._topics)
        seen = self._memory.judged(decoded, glance, write)
        if not seen:
            return self._counted_again(decoded, mine)
        self._faults = any(seen[f"r{item.partition}"] > seen[f"s{item.partition}"] for item in mine)
        return EventCounts(
            {n: Count(seen[f"r{n}"], seen[f"s{n}"], seen[f"d{n}"]) for _, n, _, _ in mine},
            seen["looked_up"],
            {name: count for name in (*Protocol, _OTHER) if (count := seen[f"of_{name}"])},
            {n: latest for _, n, _, _ in mine if (latest := seen[f"t{n}"]) is not None},
            seen["markers"],
            seen,
        )

    def landed(self, ranges: Iterable[Range], counts: EventCounts) -> None:
        """The batch is in all tables."""
        if self._clocks is not None:
            ends = {item.partition: item.end for item in ranges if item.topic == self._topics.events}
            self._clocks.landed(ends, counts.latest)

    def remembered(self) -> Remembered:
        """How well duplicates are told now."""
        state = self._memory.state()
        low_water = self._clocks.low_water() if self._clocks else None
        if low_water is None or state.forgotten_to is None:
            return Remembered(state, self._horizon, short=False)
        span = max(0, low_water - state.forgotten_to) / 1000
        return Remembered(state, min(self._horizon, span), short=span < self._horizon)

    def _there(self, ranges: Iterable[Range]) -> DataFrame:
        """(topic_id, partition, offset) of what the table has from these ranges' starts on."""
        starts = {(item.topic, item.partition): item.start for item in ranges}
        return landed_already(self._spark, self._lake, EVENTS, starts, self._topics.ids)

    def _counted_again(self, decoded: DataFrame, ranges: list[Range]) -> EventCounts:
        """The counts of a batch whose rows are in the table, by reading both once more: only after a crash.

        The table says what was a duplicate: what is sound and not there.
        """
        protocol = sf.when(sf.expr(_SOUND), _protocol()).otherwise(_OTHER)
        counted = decoded.groupBy("partition", protocol).agg(
            sf.count(sf.lit(1)), sf.count_if(sf.expr(_SOUND)), sf.count_if(LOOKED_UP), sf.count_if(sf.expr(_MARKER)),
            sf.max(sf.expr(lookup.TIME)),
        )  # fmt: skip
        partitions = {item.partition: Count() for item in ranges}
        duplicates: Counter[str] = Counter()
        latest: dict[int, int] = {}
        looked_up = markers = 0
        for number, name, records, good, looked, marked, stamp in counted.collect():
            count = partitions[number]
            partitions[number] = Count(count.records + records, count.sound + good, count.duplicates + good)
            duplicates[name] += good
            looked_up += looked
            markers += marked
            latest[number] = max(latest.get(number, stamp), stamp)
        for number, name, events in self._in_table(ranges):
            count = partitions[number]
            partitions[number] = count._replace(duplicates=count.duplicates - events)
            duplicates[name] -= events
        return EventCounts(partitions, looked_up, +duplicates, latest, markers)

    def _in_table(self, ranges: list[Range]) -> list[tuple[int, str, int]]:
        """(partition, protocol, rows) of these ranges in the events table."""
        inside = " or ".join(
            f"(topic_id = {decode.quoted(self._topics.ids[topic])} and partition = {number}"
            f" and offset >= {start} and offset < {end})"
            for topic, number, start, end in ranges
        )
        rows = self._spark.read.format("delta").load(f"{self._lake}/{EVENTS}").where(inside)
        return [tuple(row) for row in rows.groupBy("partition", _protocol()).count().collect()]


def _protocol() -> Column:
    """The protocol of a row, as a metric may name it."""
    return sf.when(sf.col("protocol").isin(*map(str, Protocol)), sf.col("protocol")).otherwise(_OTHER)


def _conditions(partitions: Iterable[int]) -> dict[str, str]:
    """What is counted of the rows on their way: by partition, and duplicates by protocol."""
    named = {"looked_up": LOOKED_UP, "markers": _MARKER}
    named |= {f"of_{name}": f"{DUPLICATE} and protocol = '{name}'" for name in Protocol}
    named[f"of_{_OTHER}"] = f"{DUPLICATE} and coalesce(protocol not in ({_PROTOCOLS}), true)"
    for number in partitions:
        here = f"partition = {number}"
        named |= {f"r{number}": here, f"s{number}": f"{here} and {_SOUND}", f"d{number}": f"{here} and {DUPLICATE}"}
    return named


def _latest(partitions: Iterable[int]) -> list[Column]:
    return [sf.expr(f"max(if(partition = {number}, {lookup.TIME}, null)) as t{number}") for number in partitions]
