"""Carries out the plan of a batch on Spark: decodes, deduplicates, writes and counts its rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as sf
from typing_extensions import override

from headrace_lake.dedup.index import DUPLICATE, TIME, Accept, DedupIndex
from headrace_lake.kafka.checkpoint import Range
from headrace_lake.kafka.start import spans
from headrace_lake.landing.left_out import listed, read
from headrace_lake.landing.plan import OLDEST, OTHER, REASONS, Execution, Landed, Plan
from headrace_lake.rows import decode
from headrace_lake.rows.decode import FAULT, Topics, counts, keyed_counts, quoted
from headrace_lake.spark.jvm import selected
from headrace_lake.tables.erasures import ERASED, ErasedIds
from headrace_lake.tables.fence import Fence
from headrace_lake.tables.layout import EVENTS, QUARANTINE, SCHEMAS
from headrace_lake.tables.on_spark import Tables, held_in, without

_SOUND: Final = f"{FAULT} is null"
_WANTED: Final = f"{_SOUND} and not {DUPLICATE}"
_AGE: Final = "_headrace?age"
"""Column of rows that land: whole seconds since they were received. What an aggregate computes itself has no generated code."""
_SECONDS: Final = "(unix_micros(landed_at) - unix_micros(received_time)) div 1000000"
_AGED: Final = f"if({_WANTED}, greatest(0, least({OLDEST}, {_SECONDS})), null) as `{_AGE}`"

_TASK: Final = 25_000
"""Offsets that are enough for a task: reading and writing them takes many times as long as starting it and its file."""


class OnSpark(Execution):
    """Lands the rows of one batch after the other."""

    def __init__(
        self, tables: Tables, fence: Fence, topics: Topics, *, index: DedupIndex | None, horizon: float
    ) -> None:
        """`horizon`: seconds within which `index` finds duplicates; without one all events land."""
        self._tables = tables
        self._fence = fence
        self._topics = topics
        self._index = index
        self._horizon = horizon
        self._erased = ErasedIds(tables.spark, tables.lake)
        self._measures = _measures()  # once: to make them takes some 60 calls to the JVM
        self._records: Any = None
        self._there: DataFrame | None = None

    @override
    def begin(self, records: DataFrame, plan: Plan) -> Landed:
        self._erased.refresh()
        self._records = gathered(records, plan.ranges)
        landed = Landed(plan.landed_at)
        if plan.strays:
            self._there = self._tables.places(spans(plan.ranges, self._topics.ids)).persist()
            self._records = without(self._records, self._there, self._topics.ids)
            landed.add_held(held_in(self._there), self._topics.ids)
        return landed

    @override
    def events(self, plan: Plan, landed: Landed) -> None:
        if not any(item.topic == self._topics.events for item in plan.ranges):
            return
        decoded = self._erased.marked(decode.events(self._records, self._topics, plan.landed_at), "event_id")
        chosen = [f"`{name}`" for name in SCHEMAS[EVENTS].names]

        def write(marked: DataFrame, accept: Accept | None = None) -> dict[str, Any]:
            observation = Observation()
            rows = selected(self._without_erased(marked), "*", _AGED).observe(observation, *self._measures)
            self._fence.write(EVENTS, selected(rows.where(_WANTED), *chosen), plan.version, accept)
            return dict(observation.get)

        if self._index is None:
            seen = write(decoded.withColumn(DUPLICATE, sf.lit(False)))
        else:
            seen = self._index.deduplicate(decoded, write)
        _add_events(landed, self._topics.events, seen)
        if self._index is not None and landed.newest is not None:
            landed.index = self._index.state()
            landed.span = landed.index.span(landed.newest, self._horizon)

    @override
    def quarantine(self, plan: Plan, landed: Landed) -> None:
        frames = []
        if any(item.topic == self._topics.quarantine for item in plan.ranges):
            frames.append(decode.rejects(self._records, self._topics, plan.landed_at))
        if landed.faulty:
            frames.append(decode.faults(self._records, self._topics, plan.landed_at))
        if not frames:
            return
        decoded = self._erased.marked(reduce(DataFrame.unionAll, frames), "id")
        wanted = ~sf.col(ERASED) if self._erased.any() else sf.lit(True)
        observation = Observation()
        rows = decoded.observe(observation, *_rejected(self._topics.quarantine, wanted)).where(wanted)
        self._fence.write(QUARANTINE, rows.select(*SCHEMAS[QUARANTINE].names), plan.version)
        _add_rejected(landed, self._topics.quarantine, dict(observation.get))

    @override
    def end(self) -> None:
        if self._there is not None:
            self._there.unpersist()
        self._records = self._there = None

    def _without_erased(self, marked: DataFrame) -> DataFrame:
        """Counts an erased event that comes again as a duplicate."""
        if not self._erased.any():
            return marked
        return marked.withColumn(DUPLICATE, sf.col(DUPLICATE) | (sf.col(ERASED) & sf.expr(_SOUND)))


def _measures() -> list[Column]:
    """Aggregates over a batch's rows, however many partitions it has; `_add_events` reads their values."""
    return [
        keyed_counts("partition").alias("records"),
        keyed_counts(f"`{_AGE}`").alias("ages"),
        sf.expr(f"count_if(not ({_SOUND}))").alias("faulty"),
        sf.expr(f"max({TIME})").alias("newest"),
        listed(sf.expr(f"{_SOUND} and {DUPLICATE}"), "event_id"),
    ]


def _rejected(topic: str, wanted: Column) -> list[Column]:
    """Aggregates over a batch's rows for quarantine, of which the `wanted` ones land; `_add_rejected` reads their values."""
    return [
        keyed_counts(f"if(topic = {quoted(topic)}, partition, null)").alias("records"),
        *(sf.count_if(wanted & (sf.col("reason") == reason)).alias(reason) for reason in REASONS),
        sf.count_if(wanted).alias("all reasons"),
        listed(~wanted, "id"),
    ]


def _add_rejected(landed: Landed, topic: str, seen: Mapping[str, Any]) -> None:
    """Adds the values of `_rejected`."""
    for number, count in counts(seen["records"]).items():
        landed.records[topic, number] += count
    reasons = {reason: seen[reason] for reason in REASONS}
    reasons[OTHER] = seen["all reasons"] - sum(reasons.values())
    landed.reasons = {reason: count for reason, count in reasons.items() if count}
    landed.left_out += read(seen)


def _add_events(landed: Landed, topic: str, seen: Mapping[str, Any]) -> None:
    """Adds the values of `_measures`, of rows of `topic`."""
    for number, count in counts(seen["records"]).items():
        landed.records[topic, number] += count
    landed.ages = counts(seen["ages"])
    landed.events = sum(landed.ages.values())
    landed.faulty, landed.newest = seen["faulty"], seen["newest"]
    landed.left_out += read(seen)


def gathered(records: DataFrame, ranges: Sequence[Range]) -> DataFrame:
    """Returns `records`, a frame of the Kafka source with a task for each of `ranges`, in as few tasks as is good."""
    count = math.ceil(sum(item.end - item.start for item in ranges) / _TASK)
    return records.coalesce(count) if count < len(ranges) else records
