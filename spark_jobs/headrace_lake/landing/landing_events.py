"""Deduplicates, writes and counts a batch's events."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as sf

from headrace_lake.dedup import lookup
from headrace_lake.dedup.index import DUPLICATE, Accept, DedupIndex, IndexState
from headrace_lake.kafka.checkpoint import Range
from headrace_lake.kafka.epoch import Epoch
from headrace_lake.landing import freshness
from headrace_lake.landing.left_out import LeftOut, listed, read
from headrace_lake.rows import decode
from headrace_lake.rows.decode import FAULT, LOOKED_UP
from headrace_lake.rows.keyed_counts import counts, keyed_counts_sql
from headrace_lake.spark.jvm import selected
from headrace_lake.tables.erasures import ERASED, ErasedIds
from headrace_lake.tables.layout import EVENTS, SCHEMAS

_SOUND: Final = f"{FAULT} is null"
_WANTED: Final = f"{_SOUND} and not {DUPLICATE}"
_AGE: Final = "_headrace?age"
"""Column of rows that land: their `freshness.span`. What an aggregate computes itself has no generated code."""
_AGED: Final = f"if({_WANTED}, {freshness.span()}, null) as `{_AGE}`"


@dataclass(frozen=True)
class DedupStatus:
    """How well duplicates are recognised now."""

    state: IndexState
    span: float
    """Seconds within which the Kafka timestamps of duplicates must be: the horizon, or less if memory ran out."""
    short: bool
    """Whether the span is less than the horizon."""


@dataclass(frozen=True)
class EventCounts:
    """Counts of a batch's records of the events topic."""

    records: Mapping[int, int] = field(default_factory=dict)
    """By partition."""
    events: int = 0
    """Rows that landed."""
    faulty: int = 0
    """Records that are no events: they go to quarantine."""
    left_out: Sequence[LeftOut] = ()
    """Resends, and events that were erased before."""
    looked_up: int = 0
    newest: int | None = None
    """The latest Kafka timestamp of the records, in ms."""
    ages: Mapping[int, int] = field(default_factory=dict)
    """How many of the rows are in each `freshness.span`."""
    erased: int = 0
    """How many of the events left out were erased before."""


class EventsLanding:
    """Lands the events of one batch after the other."""

    def __init__(self, epoch: Epoch, *, index: DedupIndex, horizon: float) -> None:
        """`horizon`: seconds within which `index` finds duplicates."""
        self._epoch = epoch
        self._index = index
        self._horizon = horizon
        self._newest: int | None = None
        self.erased: Final = ErasedIds(epoch.spark, epoch.lake)
        """Events that must not land again, as of the beginning of the batch."""

    def rebuild_index(self, since: int) -> None:
        """Fills the index from the rows of the events table since `since` (ms). Blocks until they are read."""
        began = time.monotonic()
        self._index.add_landed(since)
        seconds = round(time.monotonic() - began, 2)
        self._epoch.log.info("remembers what landed", ids=self._index.state().ids, seconds=seconds)

    def land(self, records: DataFrame, ranges: list[Range], version: int, landed_at: datetime) -> EventCounts:
        """Writes the rows of the events table, and counts them. `ranges`: all ranges of the batch, of both topics."""
        mine = self._epoch.of_events(ranges)
        if not mine:
            return EventCounts()
        decoded = self.erased.marked(decode.events(records, self._epoch.topics, landed_at), "event_id")
        chosen = [f"`{name}`" for name in SCHEMAS[EVENTS].names]

        def write(marked: DataFrame, accept: Accept | None = None) -> dict[str, Any]:
            observation = Observation()
            measures = _measures(erased=self.erased.any())
            rows = selected(self._without_erased(marked), "*", _AGED).observe(observation, *measures)
            self._epoch.fence.write(EVENTS, selected(rows.where(_WANTED), *chosen), version, accept)
            return dict(observation.get)

        counts = _measured(self._index.deduplicate(decoded, write))
        self._newest = self._newest if counts.newest is None else counts.newest
        return counts

    def _without_erased(self, marked: DataFrame) -> DataFrame:
        """Counts an erased event that comes again as a duplicate."""
        again = sf.col(DUPLICATE) | (sf.col(ERASED) & sf.expr(_SOUND))
        return marked.withColumn(DUPLICATE, again) if self.erased.any() else marked

    def dedup_status(self) -> DedupStatus:
        """Returns how well duplicates of the newest records are recognised."""
        state = self._index.state()
        if self._newest is None or state.forgotten_to is None:
            return DedupStatus(state, self._horizon, short=False)
        span = max(0, self._newest - state.forgotten_to) / 1000
        return DedupStatus(state, min(self._horizon, span), short=span < self._horizon)


def _measures(*, erased: bool) -> list[Column]:
    """Aggregates over a batch's rows, however many partitions it has; `_measured` reads their values."""
    named = {
        "records": keyed_counts_sql("partition"),
        "ages": keyed_counts_sql(f"`{_AGE}`"),
        "faulty": f"count_if(not ({_SOUND}))",
        "looked_up": f"count_if({LOOKED_UP})",
        **({"erased": f"count_if({ERASED} and {_SOUND})"} if erased else {}),
        "newest": f"max({lookup.TIME})",
    }
    again = sf.expr(f"{_SOUND} and {DUPLICATE}")
    return [*(sf.expr(measure).alias(name) for name, measure in named.items()), listed(again, "event_id")]


def _measured(seen: Mapping[str, Any]) -> EventCounts:
    """Returns the counts in the values of `_measures`."""
    ages = counts(seen["ages"])
    return EventCounts(
        counts(seen["records"]), ages.total(), seen["faulty"], read(seen), seen["looked_up"], seen["newest"], ages,
        seen.get("erased", 0),
    )  # fmt: skip
