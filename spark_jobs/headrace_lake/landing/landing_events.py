"""Deduplicates, writes and counts a batch's events, so that `records = events + duplicates + quarantined + skipped`."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as sf

from headrace_lake.dedup import lookup
from headrace_lake.dedup.index import DUPLICATE, Accept, DedupIndex, IndexState
from headrace_lake.kafka.checkpoint import Range
from headrace_lake.kafka.epoch import Epoch
from headrace_lake.kafka.start import landed_already, within
from headrace_lake.kafka.watermarks import Watermarks
from headrace_lake.landing import freshness
from headrace_lake.landing.recovered import EARLIEST, moment
from headrace_lake.rows import decode
from headrace_lake.rows.decode import FAULT, GAP, LOOKED_UP
from headrace_lake.rows.keyed_counts import counts, keyed_counts_sql
from headrace_lake.spark.jvm import selected
from headrace_lake.tables.erasures import ERASED, ErasedIds, with_erased
from headrace_lake.tables.layout import EVENTS, KEY, SCHEMAS

_OTHER: Final = "other"
_SOUND: Final = f"{FAULT} is null"
_MARKER: Final = f"{_SOUND} and {GAP}"
_WANTED: Final = f"{_SOUND} and not {DUPLICATE}"
_KNOWN: Final = ("lumberjack", "forward", "courier", "logjam", "segment")
"""Protocols with a label of their own in metrics; every other lands as well, and is counted as `other`."""
_LABELS: Final = (*_KNOWN, _OTHER)
"""The labels of protocols in metrics."""
_PROTOCOL_NUMBER: Final = (
    "case protocol "
    + " ".join(f"when '{name}' then {number}" for number, name in enumerate(_KNOWN))
    + f" else {len(_KNOWN)} end"
)
_TALLY: Final = "_headrace?tally"
"""Column by which rows are counted. What an aggregate computes itself has no generated code."""
_LATE: Final = "_headrace?late"
"""Column of rows that are counted: `_lately`."""
_WANTED_ONES: Final = 1
_DUPLICATES: Final = 2
"""A tally's codes for a row in its partition; 0: it is faulty."""
_KINDS: Final = max(freshness.SPANS, len(_LABELS))
"""How many kinds of faulty, wanted and duplicate rows a tally tells apart: ages of wanted ones, protocols of duplicates."""
_LAST: Final = 16
"""How many of a partition's last records are asked for their times."""


class PartitionCounts(NamedTuple):
    """Counts of a batch's records in one partition."""

    records: int = 0
    sound: int = 0
    duplicates: int = 0
    skipped: int = 0


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

    partitions: Mapping[int, PartitionCounts]
    looked_up: int = 0
    duplicates: Mapping[str, int] = field(default_factory=dict)
    """By protocol; ``other``: unknown protocols."""
    latest: Mapping[int, int] = field(default_factory=dict)
    """Partition -> its latest Kafka timestamp, in ms, or one of its last."""
    markers: int = 0
    """How many of the events mark a Logjam gap."""
    ages: Mapping[int, int] = field(default_factory=dict)
    """How many of the rows are in each `freshness.span`; empty if the batch was counted afterwards."""
    since: datetime | None = None
    """The earliest `landed_at` of the rows, if an earlier run wrote some of them."""
    erased: int = 0
    """How many of the duplicates were erased before; 0 if the batch was counted afterwards."""


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
        """Writes the rows of the events table, once, and counts them. `ranges`: all ranges of the batch, of both topics."""
        mine = self._epoch.of_events(ranges)
        if not mine:
            return EventCounts({})
        decoded = self.erased.marked(decode.events(records, self._epoch.topics, landed_at), "event_id")
        columns = SCHEMAS[EVENTS].names
        chosen = [f"`{name}`" for name in columns]
        if self._epoch.among_strays(mine):
            self._epoch.log.info("rows of an interrupted job left out", table=EVENTS)
            there = self._there(mine)

            def write_rest(marked: DataFrame, accept: Accept | None = None) -> dict[str, Any]:
                rows = (
                    self._without_erased(marked)
                    .where(_WANTED)
                    .select(*columns)
                    .join(there, list(KEY), "left_anti")
                    .select(*columns)
                )
                self._epoch.fence.write(EVENTS, rows, version, accept)
                return {}

            self._index.deduplicate(decoded, write_rest)
            return self._counted_again(decoded, mine)

        def write(marked: DataFrame, accept: Accept | None = None) -> dict[str, Any]:
            observation = Observation()
            measures = _measures(erased=self.erased.any())
            rows = selected(self._without_erased(marked), "*", *_counted_by(mine)).observe(observation, *measures)
            self._epoch.fence.write(EVENTS, selected(rows.where(_WANTED), *chosen), version, accept)
            return dict(observation.get)

        return _measured(mine, self._index.deduplicate(decoded, write))

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

    def _there(self, ranges: Iterable[Range]) -> DataFrame:
        """Returns (topic_id, partition, offset) of the table's rows from the starts of `ranges` on."""
        starts = {(item.topic, item.partition): item.start for item in ranges}
        return landed_already(self._epoch.spark, self._epoch.lake, EVENTS, starts, self._epoch.topics.ids)

    def _counted_again(self, decoded: DataFrame, ranges: list[Range]) -> EventCounts:
        """Returns the counts of a batch whose rows are in the table, by reading both once more. Only needed among strays.

        A sound event that is not in the table was a duplicate.
        """
        protocol = sf.when(sf.expr(_SOUND), _protocol()).otherwise(_OTHER)
        counted = decoded.groupBy("partition", protocol).agg(
            sf.count(sf.lit(1)), sf.count_if(sf.expr(_SOUND)), sf.count_if(LOOKED_UP), sf.count_if(sf.expr(_MARKER)),
            sf.max(sf.expr(lookup.TIME)),
        )  # fmt: skip
        partitions = {item.partition: PartitionCounts() for item in ranges}
        duplicates: Counter[str] = Counter()
        latest: dict[int, int] = {}
        looked_up = markers = 0
        for number, name, records, good, looked, marked, stamp in counted.collect():
            count = partitions[number]
            partitions[number] = PartitionCounts(count.records + records, count.sound + good, count.duplicates + good)
            duplicates[name] += good
            looked_up += looked
            markers += marked
            latest[number] = max(latest.get(number, stamp), stamp)
        found = self._in_table(ranges)
        for number, name, events, _ in found:
            count = partitions[number]
            partitions[number] = count._replace(duplicates=count.duplicates - events)
            duplicates[name] -= events
        since = min((moment(row[3]) for row in found), default=None)
        return EventCounts(partitions, looked_up, +duplicates, latest, markers, since=since)

    def _in_table(self, ranges: list[Range]) -> list[tuple[int, str, int, int]]:
        """Returns (partition, protocol, number of rows, their earliest `landed_at` in µs) of `ranges` in the events table."""
        inside = within(ranges, self._epoch.topics.ids)
        rows = self._epoch.spark.read.format("delta").load(f"{self._epoch.lake}/{EVENTS}").where(inside)
        rows = with_erased(
            self._epoch.spark, self._epoch.lake, EVENTS, rows.select(*KEY, "protocol", "landed_at"), inside
        )
        counted = rows.groupBy("partition", _protocol()).agg(sf.count(sf.lit(1)), sf.expr(EARLIEST))
        return [tuple(row) for row in counted.collect()]


def _protocol() -> Column:
    """Returns the protocol of a row as a metrics label."""
    return sf.when(sf.col("protocol").isin(*_KNOWN), sf.col("protocol")).otherwise(_OTHER)


def _counted_by(ranges: Iterable[Range]) -> list[str]:
    """Returns SQL: the columns of a batch's rows by which `_measures` counts."""
    place = f"partition * 3 + if({_SOUND}, if({DUPLICATE}, {_DUPLICATES}, {_WANTED_ONES}), 0)"
    kind = f"if({_SOUND}, if({DUPLICATE}, {_PROTOCOL_NUMBER}, {freshness.span()}), 0)"
    return [f"({place}) * {_KINDS} + {kind} as `{_TALLY}`", f"{_lately(ranges)} as `{_LATE}`"]


def _measures(*, erased: bool) -> list[Column]:
    """Aggregates over a batch's rows, however many partitions it has; `_measured` reads their values."""
    named = {
        "tally": keyed_counts_sql(f"`{_TALLY}`"),
        "looked_up": f"count_if({LOOKED_UP})",
        "markers": f"count_if({_MARKER})",
        **({"erased": f"count_if({ERASED} and {_SOUND})"} if erased else {}),
        "lately": f"to_json(collect_list(`{_LATE}`))",
    }
    return [sf.expr(measure).alias(name) for name, measure in named.items()]


def _measured(ranges: Iterable[Range], seen: Mapping[str, Any]) -> EventCounts:
    """Returns the counts in the values of `_measures`."""
    by_place, by_protocol, by_age = Counter[int](), Counter[int](), Counter[int]()
    for key, count in counts(seen["tally"]).items():
        place, kind = divmod(key, _KINDS)
        by_place[place] += count
        by_age[kind] += count if place % 3 == _WANTED_ONES else 0
        by_protocol[kind] += count if place % 3 == _DUPLICATES else 0
    partitions = {}
    for _, number, _, _ in ranges:
        faulty, wanted, duplicates = (by_place[number * 3 + each] for each in range(3))
        partitions[number] = PartitionCounts(faulty + wanted + duplicates, wanted + duplicates, duplicates)
    latest: dict[int, int] = {}
    for entry in json.loads(seen["lately"]):
        latest[entry["n"]] = max(latest.get(entry["n"], entry["t"]), entry["t"])
    return EventCounts(
        partitions,
        seen["looked_up"],
        {name: by_protocol[number] for number, name in enumerate(_LABELS) if by_protocol[number]},
        latest,
        seen["markers"],
        by_age,
        erased=seen.get("erased", 0),
    )


def _lately(ranges: Iterable[Range]) -> str:
    """Returns SQL: the partition and the Kafka timestamp of a row that is among the last ones of its partition; null for others.

    The latest of these times lies seldom before the partition's latest, and then ids are kept a little longer.
    """
    ends = {item.partition: item.end for item in ranges}
    after = [max(0, ends[number] - _LAST) if number in ends else 0 for number in range(max(ends) + 1)]
    # one constant, not one for each partition: Spark passes it to the generated code, which stays the same
    first = f"get(from_json('{json.dumps(after)}', 'array<bigint>'), partition)"
    return f"if(offset >= {first}, named_struct('n', partition, 't', {lookup.TIME}), null)"
