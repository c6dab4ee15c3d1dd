"""The table `erasures`: which records were deleted on request. The first erasure creates it.

A row lists the records of one batch and partition by offset. A reader that counts rows, or asks which records are there, takes an
erased record for one that is there (`with_erased`): so it never lands from its place in Kafka again, and the counts in `batches`
stay true. The ids of erased events are listed as well: an event with such an id does not land from anywhere (`ErasedIds`).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace_lake.spark.literals import OURS, quoted
from headrace_lake.spark.storage import Storage
from headrace_lake.tables.layout import KEY, PROPERTIES, make
from headrace_lake.tables.transaction_log import TransactionLog

ERASURES: Final = "erasures"
ERASED: Final = f"{OURS}erased"
"""Column of rows: the event with this id was erased."""
_LISTED: Final = f"{OURS}listed"

_COLUMNS: Final[dict[str, DataType]] = {
    "erasure": StringType(),
    "requested_by": StringType(),
    "reason": StringType(),
    "table": StringType(),  # of the erased rows; null, like what follows, if the erasure found none
    "topic": StringType(),
    "topic_id": StringType(),
    "partition": IntegerType(),
    "rows": LongType(),
    "offsets": ArrayType(LongType(), containsNull=False),
    "ids": ArrayType(StringType(), containsNull=False),  # that must not land again
    "landed_at": TimestampType(),  # of the erased rows
    "erased_at": TimestampType(),  # when the list was written: rows are deleted after that
}
SCHEMA: Final = StructType([StructField(name, kind) for name, kind in _COLUMNS.items()])


def create(storage: Storage, lake: str) -> None:
    """Creates the table if it is missing. Blocks on storage. Another command may create it at the same time."""
    path = f"{lake}/{ERASURES}"
    kinds = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in SCHEMA.fields)
    listed = ", ".join(f"'{name}' = {quoted(value)}" for name, value in PROPERTIES.items())
    make(storage, path, f"CREATE TABLE IF NOT EXISTS delta.`{path}` ({kinds}) USING delta TBLPROPERTIES ({listed})")


def exists(spark: SparkSession, lake: str) -> bool:
    """Returns whether anything was ever erased. Blocks on storage."""
    return Storage(spark).exists(f"{lake}/{ERASURES}/_delta_log")


def read(spark: SparkSession, lake: str) -> DataFrame:
    """Returns the rows of the table; none if nothing was ever erased. Blocks on storage."""
    if not exists(spark, lake):
        nothing = (sf.lit(None).cast(field.dataType).alias(field.name) for field in SCHEMA.fields)
        return spark.range(0).select(*nothing)
    return spark.read.format("delta").load(f"{lake}/{ERASURES}")


def places(spark: SparkSession, lake: str, table: str) -> DataFrame:
    """Returns (topic_id, partition, offset, landed_at) of all records that were erased from `table`."""
    erased = read(spark, lake).where(sf.col("table") == table)
    listed = erased.select("topic_id", "partition", sf.explode("offsets").alias("offset"), "landed_at")
    return listed.groupBy(*KEY).agg(sf.min("landed_at").alias("landed_at"))


def with_erased(spark: SparkSession, lake: str, table: str, rows: DataFrame, inside: str) -> DataFrame:
    """Returns `rows` of `table` that are `inside` (a condition on their key), and the erased ones, with null in columns of no
    place.

    `rows` has the columns of the key, perhaps others. Costs nothing but a look at storage if nothing was ever erased.
    """
    # The rows were looked up before: a row that was erased meanwhile is in the list, which is older.
    if not exists(spark, lake):
        return rows
    erased = places(spark, lake, table).where(inside)
    gone = erased.join(rows.select(*KEY), list(KEY), "left_anti")
    return rows.unionByName(
        gone.select(*(name for name in gone.columns if name in rows.columns)), allowMissingColumns=True
    )


class ErasedIds:
    """The ids that must not land again. Follows the table's log: one small look per `refresh` while nothing changes."""

    def __init__(self, spark: SparkSession, lake: str) -> None:
        self._spark = spark
        self._lake = lake
        self._log = TransactionLog(Storage(spark), f"{lake}/{ERASURES}")
        self._version = -1
        self._ids: DataFrame | None = None

    def refresh(self) -> None:
        """Learns of erasures since the last call. Blocks on storage; runs a query only for new ones."""
        self._log.latest()
        if self._log.read_to == self._version:
            return
        if self._ids is not None:
            self._ids.unpersist()
        ids = read(self._spark, self._lake).select(sf.explode("ids").alias(_LISTED)).distinct()
        ids = ids.coalesce(
            1
        ).persist()  # counted before they are joined: so Spark knows whether to send them to all tasks
        self._ids = ids if ids.count() else None
        self._version = self._log.read_to

    def any(self) -> bool:
        """Returns whether `marked` adds a column."""
        return self._ids is not None

    def marked(self, rows: DataFrame, column: str) -> DataFrame:
        """Returns `rows` with `ERASED`: whether their id in `column` is listed; unchanged without ids."""
        if self._ids is None:
            return rows
        listed = self._ids.withColumn(ERASED, sf.lit(True))
        joined = rows.join(listed, sf.col(column) == sf.col(_LISTED), "left").drop(_LISTED)
        return joined.withColumn(ERASED, sf.coalesce(ERASED, sf.lit(False)))
