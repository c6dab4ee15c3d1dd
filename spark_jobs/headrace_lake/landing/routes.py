"""Lands the rows of routes from the batch's rows in the events table, so that a route has the same rows, each once.

A route's write is one more write of the batch, under the same transaction version, after that of events. It needs no second look
at Kafka, and no answer about duplicates: the write to events has decided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType, VariantType

from headrace_lake.configuration.routes import RouteSettings, sampled
from headrace_lake.kafka.checkpoint import Range
from headrace_lake.kafka.epoch import Epoch
from headrace_lake.kafka.start import rows_in, within
from headrace_lake.landing import route_tables
from headrace_lake.landing.digests import Slots
from headrace_lake.rows.keyed_counts import counts, keyed_counts
from headrace_lake.rows.routed import MISFITS, OWN, RouteTable, matches
from headrace_lake.spark.storage import Storage
from headrace_lake.tables.digest import Sums, of_route
from headrace_lake.tables.erasures import ErasedIds
from headrace_lake.tables.layout import DAY, EVENTS, SCHEMAS
from headrace_lake.tables.shape import BODY_VARIANT, Shape
from headrace_lake.tables.transaction_log import plain_parquet

_KEY: Final = ("topic_id", "partition", "offset")
_COUNT: Final = f"sum(if({MISFITS} is null, 0, size(split({MISFITS}, ','))))"
_SAMPLE: Final = 1_000
"""Bodies from which the columns of a route follow."""
_SAMPLE_CHARACTERS: Final = 1 << 16
"""Longer bodies are not sampled: the driver holds the sample."""


@dataclass(frozen=True)
class RouteCounts:
    """Counts of the rows that a batch brought to routes."""

    partitions: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """Partition of the events topic -> route -> rows. A route is in it from its first batch on."""
    misfits: Mapping[str, int] = field(default_factory=dict)
    """Route -> values that did not fit their columns; without batches that were counted afterwards."""
    digests: Mapping[str, Sequence[Sums | None]] = field(default_factory=dict)
    """Route -> by slot; see `Slots`."""

    @property
    def rows(self) -> dict[str, int]:
        """Route -> rows."""
        total: Counter[str] = Counter()
        for by_route in self.partitions.values():
            total.update(by_route)
        return dict(total)


class Routes:
    """Lands the routes of one batch after the other. `tables`: see `route_tables.prepare`.

    `erased`: the events that must not land again, as of the beginning of the batch.
    `on_new` is called with the name of a table that a batch has made.
    """

    def __init__(
        self,
        epoch: Epoch,
        *,
        erased: ErasedIds,
        routes: Mapping[str, RouteSettings],
        tables: Mapping[str, RouteTable | None],
        shape: Shape,
        change_feed: bool,
        on_new: Callable[[str], None],
    ) -> None:
        self._epoch = epoch
        self._erased = erased
        self._routes = routes
        self._tables = dict(tables)
        self._change_feed = change_feed
        self._on_new = on_new
        fields = [item for item in SCHEMAS[EVENTS].fields if item.name != DAY]
        self._schema = StructType(fields)
        if shape.variant:
            self._schema = self._schema.add(BODY_VARIANT, VariantType())

    def interrupted(self, version: int) -> bool:
        """Returns whether an earlier run has begun to write this batch. Ask before its events are written."""
        return self._epoch.fence.written(EVENTS, version)

    def land(self, ranges: list[Range], version: int, batch: int, *, interrupted: bool) -> RouteCounts:
        """Writes the rows of the routes' tables, once, and counts them. The batch's events must be written before. Blocks."""
        mine = self._epoch.of_events(ranges)
        again = interrupted or self._epoch.among_strays(mine)
        removed = self._removed_within(mine) if mine and again else {}
        streams = {name: route.streams for name, route in self._routes.items()}
        streams |= {name: table.streams for name, table in removed.items()}
        if not streams or not mine:
            return RouteCounts()
        files = None if again else self._epoch.fence.files_of(EVENTS, version)
        events = self._of_table(mine) if files is None else self._of_files(files)
        found = self._matching(events, streams) if events is not None else {}
        partitions: dict[int, dict[str, int]] = {item.partition: {} for item in mine}
        misfits: dict[str, int] = {}
        digests: dict[str, Sequence[Sums | None]] = {}
        slots = Slots(ranges, self._epoch.topics)
        for name in streams:
            by_partition = found.get(name, Counter())
            table = removed.get(name) or self._tables[name] or self._sampled(name, events, by_partition, version)
            if table is None:
                continue
            if events is not None and (by_partition or files is None):
                by_partition, digests[name] = self._write(
                    table, events, mine, version, slots, by_partition, misfits, whole=files is not None
                )
                self._epoch.log.debug("route written", batch=batch, table=name)
            for number, by_route in partitions.items():
                by_route[name] = by_partition[number]
        return RouteCounts(partitions, misfits, digests)

    def _removed_within(self, ranges: list[Range]) -> dict[str, RouteTable]:
        """Returns the tables of routes that the settings no longer have, and in which an earlier run has put rows of the batch.

        They get the rest of it, so that `batches` and the table agree.
        """
        spark, lake, ids = self._epoch.spark, self._epoch.lake, self._epoch.topics.ids
        names = [name for name in self._epoch.fence.routes() if name not in self._routes]
        with_rows = [name for name in names if not rows_in(spark, lake, name, ranges, ids).isEmpty()]
        return {table.name: table for table in route_tables.load(spark, lake, with_rows)}

    def _of_files(self, files: list[str]) -> DataFrame | None:
        """Returns the rows that the batch has just written: from its own files, without a look at the whole table."""
        if not files:
            return None
        rows = plain_parquet(self._epoch.spark.read.schema(self._schema), files)
        return rows.withColumn(DAY, sf.to_date("landed_at"))

    def _of_table(self, ranges: list[Range]) -> DataFrame:
        """Returns the rows that the table has of the batch; another run may have written them before an erasure listed some."""
        events = self._epoch.spark.read.format("delta").load(f"{self._epoch.lake}/{EVENTS}")
        return self._erased.left_out(events.where(within(ranges, self._epoch.topics.ids)), "event_id")

    def _matching(self, events: DataFrame, streams: Mapping[str, str]) -> dict[str, Counter[int]]:
        """Returns route -> partition -> rows that it gets: most batches have nothing for most routes, which are not written.

        `streams`: by route.
        """
        measures = [
            keyed_counts(sf.expr(f"if({matches(patterns)}, partition, null)")).alias(name)
            for name, patterns in streams.items()
        ]
        row = events.select("stream", "partition").agg(*measures).first()
        return {} if row is None else {name: counts(row[name]) for name in streams}

    def _sampled(self, name: str, events: DataFrame | None, found: Counter[int], version: int) -> RouteTable | None:
        """Returns the table of the route `name`, made from a sample of the rows; None if none has a JSON object."""
        if events is None or not found:
            return None
        text = f"coalesce(body, to_json({BODY_VARIANT}))" if BODY_VARIANT in events.columns else "body"
        rows = events.where(matches(self._routes[name].streams)).selectExpr(f"{text} as text")
        bodies = rows.where(f"length(text) <= {_SAMPLE_CHARACTERS}").limit(_SAMPLE).collect()
        columns = sampled((row["text"] for row in bodies), OWN)
        if not columns:
            return None
        self._epoch.fence.check(version)
        asked = RouteTable(name, self._routes[name].streams, columns)
        table = route_tables.create(Storage(self._epoch.spark), self._epoch.lake, asked, change_feed=self._change_feed)
        self._on_new(name)
        self._epoch.log.info("route table created", table=name, columns=[column.name for column in table.columns])
        self._tables[name] = table
        return table

    def _write(
        self,
        table: RouteTable,
        events: DataFrame,
        ranges: list[Range],
        version: int,
        slots: Slots,
        found: Counter[int],
        misfits: dict[str, int],
        *,
        whole: bool,
    ) -> tuple[Counter[int], Sequence[Sums | None]]:
        """Writes the rows of one route; returns how many it has by partition, and their sums by slot.

        `whole`: `events` are the rows of this run's own write, and nothing of the batch can be in the route's table yet.
        """
        covered = of_route(column.name for column in table.columns)
        if not self._epoch.fence.written(table.name, version):
            rows = table.rows(events)
            if whole:
                observation = Observation()
                observed = slots.hashed(rows, covered, "true").observe(
                    observation, sf.expr(_COUNT).alias("misfits"), *slots.sums()
                )
                if self._epoch.fence.write(
                    table.name, observed.select(*(f"`{name}`" for name in rows.columns)), version
                ):
                    seen: dict[str, Any] = dict(observation.get)
                    misfits[table.name] = seen["misfits"] or 0
                    return found, slots.read(seen)
            else:
                there = rows_in(self._epoch.spark, self._epoch.lake, table.name, ranges, self._epoch.topics.ids).select(
                    *_KEY
                )
                columns = rows.columns
                self._epoch.fence.write(table.name, rows.join(there, list(_KEY), "left_anti").select(*columns), version)
        counted: Counter[int] = Counter()
        there = rows_in(self._epoch.spark, self._epoch.lake, table.name, ranges, self._epoch.topics.ids)
        for number, count in there.groupBy("partition").agg(sf.count(sf.lit(1))).collect():
            counted[number] = count
        return counted, slots.there(self._epoch.spark, self._epoch.lake, table.name, covered, ranges)
