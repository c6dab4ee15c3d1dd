"""Deduplicates, writes and counts a batch's events."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as sf

from headrace_lake.dedup import lookup
from headrace_lake.dedup.index import DUPLICATE, Accept, DedupIndex, IndexState
from headrace_lake.kafka.checkpoint import Range
from headrace_lake.kafka.epoch import Epoch
from headrace_lake.kafka.watermarks import Watermarks
from headrace_lake.landing import freshness
from headrace_lake.landing.left_out import LeftOut, listed, read
from headrace_lake.rows import decode
from headrace_lake.rows.decode import FAULT, GAP, LOOKED_UP
from headrace_lake.rows.keyed_counts import counts, keyed_counts_sql
from headrace_lake.spark.jvm import selected
from headrace_lake.tables.erasures import ERASED, ErasedIds
from headrace_lake.tables.layout import EVENTS, SCHEMAS

_SOUND: Final = f"{FAULT} is null"
_MARKER: Final = f"{_SOUND} and {GAP}"
_WANTED: Final = f"{_SOUND} and not {DUPLICATE}"
_AGE: Final = "_headrace?age"
"""Column of rows that land: their `freshness.span`. What an aggregate computes itself has no generated code."""
_LATE: Final = "_headrace?late"
"""Column of rows that are counted: `_lately`."""
_LAST: Final = 16
"""How many of a partition's last records are asked for their times."""


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
    latest: Mapping[int, int] = field(default_factory=dict)
    """Partition -> its latest Kafka timestamp, in ms, or one of its last."""
    markers: int = 0
    """How many of the events mark a Logjam gap."""
    ages: Mapping[int, int] = field(default_factory=dict)
    """How many of the rows are in each `freshness.span`."""
    erased: int = 0
    """How many of the events left out were erased before."""


class EventsLanding:
    """Lands the events of one batch after the other. `watermarks` is None if `index` never finds duplicates."""

    def __init__(
        self,
        epoch: Epoch,
        *,
        index: DedupIndex,
        watermarks: Watermarks | None,
        horizon: float,
        slack: float,
    ) -> None:
        """`horizon` and `slack` in seconds: ids are kept for their sum before the watermark."""
        self._epoch = epoch
        self._index = index
        self._watermarks = watermarks
        self._horizon = horizon
        self._id_retention: Final = round((horizon + slack) * 1000)
        self.erased: Final = ErasedIds(epoch.spark, epoch.lake)
        """Events that must not land again, as of the beginning of the batch."""

    def rebuild_index(self) -> None:
        """Fills the index from the events table. Blocks until all ids within the horizon are read."""
        keep_from = self._keep_from()
        if keep_from is None:
            return
        began = time.monotonic()
        self._index.expire(keep_from)
        self._index.add_landed(keep_from)
        seconds = round(time.monotonic() - began, 2)
        self._epoch.log.info("remembers what landed", ids=self._index.state().ids, seconds=seconds)

    def begin_batch(self) -> None:
        """Updates the watermarks and the erased ids before a batch. Raises `KafkaAwayError`."""
        self.erased.refresh()
        if self._watermarks is None:
            return
        self._watermarks.ask()
        keep_from = self._keep_from()
        if keep_from is not None:
            self._index.expire(keep_from)

    def _keep_from(self) -> int | None:
        """Returns the time, in ms, from which on ids must be known; None while the watermark is unknown."""
        watermark = self._watermarks.watermark() if self._watermarks else None
        return None if watermark is None else watermark - self._id_retention

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
            rows = selected(self._without_erased(marked), "*", *_counted_by(mine)).observe(observation, *measures)
            self._epoch.fence.write(EVENTS, selected(rows.where(_WANTED), *chosen), version, accept)
            return dict(observation.get)

        return _measured(self._index.deduplicate(decoded, write))

    def _without_erased(self, marked: DataFrame) -> DataFrame:
        """Counts an erased event that comes again as a duplicate."""
        again = sf.col(DUPLICATE) | (sf.col(ERASED) & sf.expr(_SOUND))
        return marked.withColumn(DUPLICATE, again) if self.erased.any() else marked

    def landed(self, ranges: Iterable[Range], counts: EventCounts) -> None:
        """Advances the watermarks: the batch is in all tables."""
        if self._watermarks is not None:
            ends = {item.partition: item.end for item in self._epoch.of_events(ranges)}
            self._watermarks.landed(ends, counts.latest)

    def dedup_status(self) -> DedupStatus:
        """Returns how well duplicates are recognised now."""
        state = self._index.state()
        watermark = self._watermarks.watermark() if self._watermarks else None
        if watermark is None or state.forgotten_to is None:
            return DedupStatus(state, self._horizon, short=False)
        span = max(0, watermark - state.forgotten_to) / 1000
        return DedupStatus(state, min(self._horizon, span), short=span < self._horizon)


def _counted_by(ranges: Iterable[Range]) -> list[str]:
    """Returns SQL: the columns of a batch's rows by which `_measures` counts."""
    return [f"if({_WANTED}, {freshness.span()}, null) as `{_AGE}`", f"{_lately(ranges)} as `{_LATE}`"]


def _measures(*, erased: bool) -> list[Column]:
    """Aggregates over a batch's rows, however many partitions it has; `_measured` reads their values."""
    named = {
        "records": keyed_counts_sql("partition"),
        "ages": keyed_counts_sql(f"`{_AGE}`"),
        "faulty": f"count_if(not ({_SOUND}))",
        "looked_up": f"count_if({LOOKED_UP})",
        "markers": f"count_if({_MARKER})",
        **({"erased": f"count_if({ERASED} and {_SOUND})"} if erased else {}),
        "lately": f"to_json(collect_list(`{_LATE}`))",
    }
    again = sf.expr(f"{_SOUND} and {DUPLICATE}")
    return [*(sf.expr(measure).alias(name) for name, measure in named.items()), listed(again, "event_id")]


def _measured(seen: Mapping[str, Any]) -> EventCounts:
    """Returns the counts in the values of `_measures`."""
    latest: dict[int, int] = {}
    for entry in json.loads(seen["lately"]):
        latest[entry["n"]] = max(latest.get(entry["n"], entry["t"]), entry["t"])
    ages = counts(seen["ages"])
    return EventCounts(
        counts(seen["records"]), ages.total(), seen["faulty"], read(seen), seen["looked_up"], latest, seen["markers"], ages,
        seen.get("erased", 0),
    )  # fmt: skip


def _lately(ranges: Iterable[Range]) -> str:
    """Returns SQL: the partition and the Kafka timestamp of a row that is among the last ones of its partition; null for others.

    The latest of these times lies seldom before the partition's latest, and then ids are kept a little longer.
    """
    ends = {item.partition: item.end for item in ranges}
    after = [max(0, ends[number] - _LAST) if number in ends else 0 for number in range(max(ends) + 1)]
    # one constant, not one for each partition: Spark passes it to the generated code, which stays the same
    first = f"get(from_json('{json.dumps(after)}', 'array<bigint>'), partition)"
    return f"if(offset >= {first}, named_struct('n', partition, 't', {lookup.TIME}), null)"
