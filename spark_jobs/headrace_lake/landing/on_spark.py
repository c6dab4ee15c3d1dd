"""Carries out the plan of a batch on Spark: decodes, deduplicates, writes and counts its rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as sf
from typing_extensions import override

from headrace_lake.dedup.index import DUPLICATE, TIME, Accept, DedupIndex
from headrace_lake.kafka.start import spans
from headrace_lake.landing import freshness
from headrace_lake.landing.gathered import gathered
from headrace_lake.landing.left_out import listed, read
from headrace_lake.landing.plan import DedupStatus, EventCounts, Execution, Plan, QuarantineCounts
from headrace_lake.landing.quarantine import RECORDS, Quarantine
from headrace_lake.rows import decode
from headrace_lake.rows.decode import FAULT, Topics
from headrace_lake.rows.keyed_counts import counts, keyed_counts_sql
from headrace_lake.spark.jvm import selected
from headrace_lake.tables.erasures import ERASED, ErasedIds
from headrace_lake.tables.fence import Fence
from headrace_lake.tables.layout import EVENTS, QUARANTINE, SCHEMAS
from headrace_lake.tables.on_spark import Held, Tables, held_in, without

_SOUND: Final = f"{FAULT} is null"
_WANTED: Final = f"{_SOUND} and not {DUPLICATE}"
_AGE: Final = "_headrace?age"
"""Column of rows that land: their `freshness.span`. What an aggregate computes itself has no generated code."""
_AGED: Final = f"if({_WANTED}, {freshness.span()}, null) as `{_AGE}`"


class OnSpark(Execution):
    """Lands the rows of one batch after the other."""

    def __init__(self, tables: Tables, fence: Fence, topics: Topics, *, index: DedupIndex, horizon: float) -> None:
        """`horizon`: seconds within which `index` finds duplicates."""
        self._tables = tables
        self._fence = fence
        self._topics = topics
        self._index = index
        self._horizon = horizon
        self._newest: int | None = None
        self._erased = ErasedIds(tables.spark, tables.lake)
        self._quarantine = Quarantine(topics, self._erased)
        self._records: Any = None
        self._there: DataFrame | None = None

    @override
    def begin(self, records: DataFrame, plan: Plan) -> Mapping[tuple[str, int], Held]:
        self._tables.spark.sparkContext.setJobDescription(plan.what)
        self._erased.refresh()
        self._records = gathered(records, plan.ranges)
        if not plan.strays:
            return {}
        self._there = self._tables.places(spans(plan.ranges, self._topics.ids)).persist()
        self._records = without(self._records, self._there, self._topics.ids)
        return held_in(self._there)

    @override
    def events(self, plan: Plan) -> EventCounts:
        if not any(item.topic == self._topics.events for item in plan.ranges):
            return EventCounts()
        decoded = self._erased.marked(decode.events(self._records, self._topics, plan.landed_at), "event_id")
        chosen = [f"`{name}`" for name in SCHEMAS[EVENTS].names]

        def write(marked: DataFrame, accept: Accept | None = None) -> dict[str, Any]:
            observation = Observation()
            measures = _measures(erased=self._erased.any())
            rows = selected(self._without_erased(marked), "*", _AGED).observe(observation, *measures)
            self._fence.write(EVENTS, selected(rows.where(_WANTED), *chosen), plan.version, accept)
            return dict(observation.get)

        found = _measured(self._index.deduplicate(decoded, write))
        self._newest = self._newest if found.newest is None else found.newest
        return found

    @override
    def quarantine(self, plan: Plan, faulty: int) -> QuarantineCounts:
        decoded = self._quarantine.rows(self._records, plan.ranges, plan.landed_at, faults=bool(faulty))
        if decoded is None:
            return QuarantineCounts()
        observation = Observation()
        rows = decoded.observe(observation, *self._quarantine.measures()).where(self._quarantine.wanted)
        self._fence.write(QUARANTINE, rows.select(*SCHEMAS[QUARANTINE].names), plan.version)
        seen = dict(observation.get)
        return QuarantineCounts(counts(seen[RECORDS]), self._quarantine.by_reason(seen), read(seen))

    @override
    def end(self) -> None:
        if self._there is not None:
            self._there.unpersist()
        self._records = self._there = None

    def _without_erased(self, marked: DataFrame) -> DataFrame:
        """Counts an erased event that comes again as a duplicate."""
        again = sf.col(DUPLICATE) | (sf.col(ERASED) & sf.expr(_SOUND))
        return marked.withColumn(DUPLICATE, again) if self._erased.any() else marked

    @override
    def dedup_status(self) -> DedupStatus:
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
        **({"erased": f"count_if({ERASED} and {_SOUND})"} if erased else {}),
        "newest": f"max({TIME})",
    }
    again = sf.expr(f"{_SOUND} and {DUPLICATE}")
    return [*(sf.expr(measure).alias(name) for name, measure in named.items()), listed(again, "event_id")]


def _measured(seen: Mapping[str, Any]) -> EventCounts:
    """Returns the counts in the values of `_measures`."""
    ages = counts(seen["ages"])
    return EventCounts(
        counts(seen["records"]), ages.total(), seen["faulty"], read(seen), seen["newest"], ages,
        seen.get("erased", 0),
    )  # fmt: skip
