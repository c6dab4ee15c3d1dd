"""Finds, lists and deletes the rows of an erasure on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Final

from headrace_common.record.contract import DETERMINISTIC
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headrace_lake.tables import erasures
from headrace_lake.tables.layout import DAY, EVENTS, KEY, QUARANTINE, SCHEMAS
from headrace_lake.tables.on_spark import Tables
from headrace_lake.tables.properties import ERASED_APP

_SOURCE: Final = "headrace_erased"


class ErasureRows:
    """The rows of one erasure. Every call blocks and runs a query."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._found: DataFrame | None = None

    def erasures(self) -> int:
        """Returns how many erasures were listed so far."""
        return erasures.read(self._tables.spark, self._tables.lake).select("erasure").distinct().count()

    def find(self, where: str) -> dict[str, int]:
        """Finds the rows that `where` names and no erasure has listed, and keeps them until `close`; empty: it names none.
        Returns table -> how many.

        In quarantine it can look into a body only if the bytes are JSON; a column that quarantine lacks is null there. Copies
        of a named event go with it, wherever they are: they have its id. So do events with a listed id.
        """
        events, rejects = self._tables.read(EVENTS), self._tables.read(QUARANTINE)
        named = events.where(where or "false").select(sf.col("event_id").alias("gone"))
        of_rejects = rejects.withColumns(
            {"event_id": sf.col("id"), "body": sf.expr("if(is_valid_utf8(raw), string(raw), null)")}
        )
        lacks = [field for field in SCHEMAS[EVENTS] if field.name not in of_rejects.columns]
        of_rejects = of_rejects.withColumns({field.name: sf.lit(None).cast(field.dataType) for field in lacks})
        of_rejects = of_rejects.where(where or "false").select(*rejects.columns)
        # ids without content ("u.") may be shared by what was refused together
        same = of_rejects.where(sf.col("id").startswith(DETERMINISTIC.decode())).select(sf.col("id").alias("gone"))
        before = erasures.read(self._tables.spark, self._tables.lake).select(sf.explode("ids").alias("gone"))
        ids = named.unionAll(same).unionAll(before).distinct().persist()
        columns = ("topic", *KEY, "landed_at")
        found = events.join(ids, events["event_id"] == ids["gone"], "left_semi")
        places = [self._unlisted(found.select(*columns, sf.col("event_id").alias("own_id")), EVENTS)]
        also = rejects.join(ids, rejects["id"] == ids["gone"], "left_semi")
        rows = of_rejects.unionByName(also).select(*columns, "id").dropDuplicates(list(KEY))
        own_id = sf.when(sf.col("id").startswith(DETERMINISTIC.decode()), sf.col("id"))
        places.append(self._unlisted(rows.select(*columns, own_id.alias("own_id")), QUARANTINE))
        # by the time of landing, so that a line lists no more than a batch
        placed = reduce(DataFrame.unionByName, places).groupBy("table", "topic", "topic_id", "partition", "landed_at")
        self._found = placed.agg(
            sf.count(sf.lit(1)).alias("rows"),
            sf.collect_list("offset").alias("offsets"),
            sf.collect_set("own_id").alias("ids"),
        ).persist()
        return dict(self._found.groupBy("table").agg(sf.sum("rows")).collect())

    def _unlisted(self, rows: DataFrame, table: str) -> DataFrame:
        return rows.join(self._places(table), list(KEY), "left_anti").withColumn("table", sf.lit(table))

    def _places(self, table: str) -> DataFrame:
        return erasures.places(self._tables.spark, self._tables.lake, table).select(*KEY)

    def list_found(self, own: Mapping[str, str], number: int, latest: Callable[[], int]) -> None:
        """Lists what was found, or that nothing was, as the erasure of this `number`, unless there is one by `latest`.

        `own`: columns with the same value in each line.
        """
        nothing = self._tables.spark.range(1).select(sf.lit(0).alias("rows"))
        rows = nothing if self._found is None or self._found.isEmpty() else self._found
        given = {**{name: sf.lit(value) for name, value in own.items()}, "erased_at": sf.current_timestamp()}
        columns = [
            given.get(field.name, sf.col(field.name) if field.name in rows.columns else sf.lit(None))
            .cast(field.dataType).alias(field.name)
            for field in erasures.SCHEMA.fields
        ]  # fmt: skip
        erasures.create(self._tables.storage, self._tables.lake)
        made = rows.select(*columns).coalesce(1)
        self._tables.append(erasures.ERASURES, made, number, own["erasure"], latest, app=ERASED_APP)

    def is_listed(self, erasure: str) -> bool:
        """Returns whether the list has lines of `erasure`."""
        return not self._tables.read(erasures.ERASURES).where(sf.col("erasure") == erasure).isEmpty()

    def left(self, table: str) -> dict[str, int]:
        """Returns day -> how many rows of `table` are listed and still there."""
        there = self._tables.read(table).select(*KEY, DAY).join(self._places(table), list(KEY), "left_semi")
        return {str(day): count for day, count in there.groupBy(DAY).count().collect()}

    def delete(self, table: str, days: Iterable[str]) -> None:
        """Deletes the listed rows of `table` in `days`. Files that held any are written again without them."""
        sf.broadcast(self._places(table)).createOrReplaceTempView(_SOURCE)
        same = " and ".join(f"t.`{name}` = s.`{name}`" for name in KEY)
        within = ", ".join(f"date'{day}'" for day in sorted(days))
        self._tables.spark.sql(
            f"MERGE INTO delta.`{self._tables.path(table)}` t USING {_SOURCE} s"
            f" ON {same} and t.{DAY} in ({within}) WHEN MATCHED THEN DELETE"
        )

    def close(self) -> None:
        """Forgets what was found."""
        if self._found is not None:
            self._found.unpersist()
        self._found = None
