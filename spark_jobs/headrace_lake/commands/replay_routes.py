"""The routes in a step of a replay: rows of events that a route's table had and lacks, those of this step among them.

A route takes part in the ranges whose row of `batches` names it: it did not begin before, and a removed one got no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace_lake.commands.replay_plan import BatchRange
from headrace_lake.commands.replay_rows import RANGE, inside
from headrace_lake.kafka.checkpoint import Range
from headrace_lake.kafka.start import rows_in
from headrace_lake.landing import route_tables
from headrace_lake.rows.decode import Topics
from headrace_lake.tables.erasures import ErasedIds
from headrace_lake.tables.fence import Fence
from headrace_lake.tables.layout import EVENTS

_KEY: Final = ("topic_id", "partition", "offset")


class RoutesReplay:
    """The routes `names` in one step. Call `plan` before anything of the step is written, `write` after its events."""

    def __init__(
        self,
        spark: SparkSession,
        lake: str,
        names: Iterable[str],
        step: list[BatchRange],
        spans: list[Range],
        topics: Topics,
        erased: ErasedIds,
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._erased = erased
        self._step = step
        self._spans = [span for span in spans if span.topic == topics.events]
        self._ids = topics.ids
        active = {name for batch_range in step for name in batch_range.routed or ()}
        self._tables = route_tables.load(spark, lake, sorted(active & set(names)))
        self._counts = [dict(batch_range.routed or {}) for batch_range in step]
        self._missing: dict[str, int] = {}

    def plan(self, wanted: DataFrame, range_frame: DataFrame) -> None:
        """Counts what each table has, and lacks; `wanted`: the events that the step lands. Blocks."""
        for table in self._tables:
            there = rows_in(self._spark, self._lake, table.name, self._spans, self._ids).select(*_KEY)
            rows = self._lacking(table.name, there, wanted)
            has = there.join(sf.broadcast(range_frame), inside(), "inner").select(RANGE, sf.lit(False).alias("new"))
            both = has.unionAll(table.rows(rows).join(sf.broadcast(range_frame), inside(), "inner").select(
                RANGE, sf.lit(True).alias("new")
            ))  # fmt: skip
            for by_route in self._counts:
                if table.name in by_route:
                    by_route[table.name] = 0
            for index, new, count in both.groupBy(RANGE, "new").agg(sf.count(sf.lit(1))).collect():
                if table.name in self._counts[index]:
                    self._counts[index][table.name] += count
                    self._missing[table.name] = self._missing.get(table.name, 0) + (count if new else 0)

    def counts(self, index: int) -> dict[str, int] | None:
        """Returns route -> rows that it has after the step, in the range `index`; None without a route."""
        return None if self._step[index].routed is None else self._counts[index]

    @property
    def missing(self) -> int:
        """Rows that the tables lack, of all routes."""
        return sum(self._missing.values())

    def write(self, fence: Fence, version: int) -> None:
        """Writes what the tables lack, once the step's events are in theirs. Blocks."""
        for table in self._tables:
            if self._missing.get(table.name):
                there = rows_in(self._spark, self._lake, table.name, self._spans, self._ids).select(*_KEY)
                rows = table.rows(self._lacking(table.name, there))
                fence.write(table.name, rows, version)

    def _lacking(self, name: str, there: DataFrame, wanted: DataFrame | None = None) -> DataFrame:
        """Returns the events in the ranges of the route `name` that its table lacks; `wanted`: events not in theirs yet."""
        places = " or ".join(
            f"(topic_id = '{each.topic_id}' and partition = {each.partition} and offset >= {each.first_held}"
            f" and offset < {each.end})"
            for each in self._step
            if name in (each.routed or ())
        )
        events = self._spark.read.format("delta").load(f"{self._lake}/{EVENTS}")
        if wanted is not None:
            events = events.unionByName(wanted.select(*(column for column in wanted.columns if column in events.columns)),
                                        allowMissingColumns=True)  # fmt: skip
        return self._erased.left_out(events.where(places).join(there, list(_KEY), "left_anti"), "event_id")
