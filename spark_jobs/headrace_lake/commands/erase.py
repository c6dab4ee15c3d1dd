"""Erases records on request, beside a running job if need be.

First one commit to the table `erasures` lists the records, by place and id. From then on none of them lands again, and counts
take it for present (`tables.erasures`). Only then the rows are deleted, table by table, in commits without a transaction
identifier, like those of maintenance: each deletes the rows that are listed and still there. So a killed erasure has done
nothing, or left rows that are listed, and any later one deletes those.

The fence needs no claim: a job that is shut out, or a new one, may land at any time without bringing a listed record back, as
it looks at the list before each batch. A batch that has begun before the list was written, and holds the same event sent
again, may land that; the next erasure deletes it, and the proof names it until then.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Final

from headrace_common.operations.log import Log
from headrace_common.record.contract import DETERMINISTIC
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace_lake.commands.predicate import Predicate, hashed
from headrace_lake.configuration.settings import LakeSettings, location
from headrace_lake.spark.halt import HaltError
from headrace_lake.spark.storage import Storage
from headrace_lake.tables import erasures
from headrace_lake.tables.append import Appender
from headrace_lake.tables.fence import Fence
from headrace_lake.tables.layout import DAY, EVENTS, KEY, QUARANTINE
from headrace_lake.tables.properties import ERASED_APP

_TABLES: Final = (EVENTS, QUARANTINE)
_ID: Final = {EVENTS: "event_id", QUARANTINE: "id"}
_ATTEMPTS: Final = 20  # at a commit that another one overtakes
_CONFLICT: Final = re.compile(r"Concurrent\w+Exception|DELTA_CONCURRENT_\w+|(Metadata|Protocol)ChangedException")
_SOURCE: Final = "headrace_erased"


@dataclass(frozen=True)
class ErasureRequest:
    """The request: the records to erase, for whom and why. Without a predicate: only the rows that earlier erasures have left."""

    predicate: Predicate
    reason: str
    requested_by: str
    keep_predicate: bool = False


@dataclass(frozen=True)
class ErasureResult:
    """How many rows an erasure listed, or would list; and how many it deleted, including those that earlier ones left."""

    events: int = 0
    quarantined: int = 0
    deleted: int = 0


class Erase:
    """One erasure. Without `apply` it changes nothing. The bytes go with the next vacuum of a job."""

    def __init__(
        self, spark: SparkSession, settings: LakeSettings, request: ErasureRequest, *, apply: bool, log: Log
    ) -> None:
        self._spark = spark
        self._lake = location(settings.path)
        self._request = request
        self._apply = apply
        self._log = log
        self._storage = Storage(spark)
        self._erasure = uuid.uuid4().hex

    def run(self) -> ErasureResult:
        """Erases, logs a line for each table and partition, and returns the sum. Blocks: reads all of both tables.

        Raises `HaltError` without tables, or if commits of others overtake it again and again.
        """
        if not self._storage.exists(f"{self._lake}/{EVENTS}/_delta_log"):
            raise HaltError(f"there are no tables in {self._lake}: nothing was landed that could be erased")
        fence = Fence(self._spark, self._lake)
        fence.epoch()  # refuses logs that it does not understand: deletion vectors keep bytes
        for _ in range(_ATTEMPTS):
            if (result := self._planned_and_done()) is not None:
                return result
        raise HaltError("nothing was erased: others write into the table erasures all the time")

    def _planned_and_done(self) -> ErasureResult | None:
        """Plans and erases. None, and nothing is done, if another erasure came in between: it may have listed the same rows."""
        before = self._erasures()  # a later one spoils the plan
        listed = self._plan().persist()
        try:
            found = self._say(listed)
            left = 0
            if before:
                left = sum(self._listed(table).count() for table in _TABLES)
            if left:
                self._log.warning("rows of an earlier erasure found", rows=left)
            if not self._apply:
                self._log.info("would erase", events=found[EVENTS], quarantined=found[QUARANTINE])
                return ErasureResult(found[EVENTS], found[QUARANTINE])
            any_found = any(found.values())
            if (self._request.predicate or any_found) and not self._list(listed, any_found, before + 1):
                return None
        finally:
            listed.unpersist()
        deleted = sum(self._delete(table) for table in _TABLES) if left or any_found else 0
        self._log.info(
            "erased", erasure=self._erasure, events=found[EVENTS], quarantined=found[QUARANTINE], deleted=deleted
        )
        return ErasureResult(found[EVENTS], found[QUARANTINE], deleted)

    def _erasures(self) -> int:
        """Returns how many erasures the table has."""
        return erasures.read(self._spark, self._lake).select("erasure").distinct().count()

    def _read(self, table: str) -> DataFrame:
        return self._spark.read.format("delta").load(f"{self._lake}/{table}")

    def _plan(self) -> DataFrame:
        """Returns the rows for `erasures`, without who, why and when: the requested records that are not listed yet.

        Copies of a named event go with it, wherever they are: they have its id. So do events with a listed id.
        """
        events, rejects = self._read(EVENTS), self._read(QUARANTINE)
        named = events.where(self._request.predicate.events()).select(sf.col("event_id").alias("gone"))
        of_rejects = rejects.where(self._request.predicate.quarantine())
        # ids without content ("u.") may be shared by what was refused together
        same = of_rejects.where(sf.col("id").startswith(DETERMINISTIC.decode())).select(sf.col("id").alias("gone"))
        before = erasures.read(self._spark, self._lake).select(sf.explode("ids").alias("gone"))
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
        return placed.agg(
            sf.count(sf.lit(1)).alias("rows"),
            sf.collect_list("offset").alias("offsets"),
            sf.collect_set("own_id").alias("ids"),
        )

    def _unlisted(self, rows: DataFrame, table: str) -> DataFrame:
        listed = erasures.places(self._spark, self._lake, table)
        return rows.join(listed, list(KEY), "left_anti").withColumn("table", sf.lit(table))

    def _say(self, listed: DataFrame) -> dict[str, int]:
        """Logs a line for each table and partition; returns the rows of each table."""
        summed = listed.groupBy("table", "topic", "partition").agg(
            sf.sum("rows").alias("rows"), sf.count(sf.lit(1)).alias("batches"),
            sf.min("landed_at").alias("first"), sf.max("landed_at").alias("last"),
        )  # fmt: skip
        found = dict.fromkeys(_TABLES, 0)
        for row in summed.orderBy("table", "topic", "partition").collect():
            found[row["table"]] += row["rows"]
            self._log.info(
                "found", table=row["table"], topic=row["topic"], partition=row["partition"], rows=row["rows"],
                batches=row["batches"], landed_first=str(row["first"]), landed_last=str(row["last"]),
            )  # fmt: skip
        return found

    def _list(self, listed: DataFrame, found: bool, number: int) -> bool:
        """Writes the list as the erasure of this `number`, in one commit; from here on nothing of it lands again.

        False, and nothing is written, if another erasure has the number.
        """
        request = self._request
        text = str(request.predicate)
        rows = listed if found else self._spark.range(1).select(sf.lit(0).alias("rows"))
        own = {
            "erasure": sf.lit(self._erasure),
            "requested_by": sf.lit(request.requested_by),
            "reason": sf.lit(request.reason),
            "predicate": sf.lit(text if request.keep_predicate else hashed(text)),
            "erased_at": sf.current_timestamp(),
        }
        columns = [
            own.get(field.name, sf.col(field.name) if field.name in rows.columns else sf.lit(None))
            .cast(field.dataType).alias(field.name)
            for field in erasures.SCHEMA.fields
        ]  # fmt: skip
        erasures.create(self._storage, self._lake)
        path = f"{self._lake}/{erasures.ERASURES}"
        made = rows.select(*columns).coalesce(1)
        append = partial(Appender(self._spark, ERASED_APP).append, path, made, number, self._erasure, self._erasures)
        if not self._committed(erasures.ERASURES, append):
            return False
        return not self._read(erasures.ERASURES).where(sf.col("erasure") == self._erasure).isEmpty()

    def _listed(self, table: str) -> DataFrame:
        """Returns (topic_id, partition, offset, day) of rows in `table` that are listed."""
        places = erasures.places(self._spark, self._lake, table).select(*KEY)
        return self._read(table).select(*KEY, DAY).join(places, list(KEY), "left_semi")

    def _delete(self, table: str) -> int:
        """Deletes the listed rows of `table`; returns how many. Files that held any are written again without them."""
        deleted = 0
        for _ in range(_ATTEMPTS):
            days = {str(day): count for day, count in self._listed(table).groupBy(DAY).count().collect()}
            if not days:
                return deleted
            places = erasures.places(self._spark, self._lake, table).select(*KEY)
            sf.broadcast(places).createOrReplaceTempView(_SOURCE)
            same = " and ".join(f"t.`{name}` = s.`{name}`" for name in KEY)
            within = ", ".join(f"date'{day}'" for day in sorted(days))
            merge = (
                f"MERGE INTO delta.`{self._lake}/{table}` t USING {_SOURCE} s"
                f" ON {same} and t.{DAY} in ({within}) WHEN MATCHED THEN DELETE"
            )
            if self._committed(table, partial(self._spark.sql, merge)):
                deleted += sum(days.values())
                self._log.debug("deleted", table=table, rows=sum(days.values()))
        raise HaltError(
            f"the rows of the table {table} are listed and not deleted yet, because compaction changes the same files all the"
            " time: run `python -m headrace_lake erase --finish --apply` later"
        )

    def _committed(self, table: str, commit: Callable[[], object]) -> bool:
        """Makes a commit to `table`. False if another one came in between, so that nothing of it is there. Blocks."""
        try:
            commit()
        except (Py4JJavaError, PySparkException) as error:
            if _CONFLICT.search(str(error)) is None:
                raise
            self._log.debug("commit conflict", table=table)
            return False
        return True
