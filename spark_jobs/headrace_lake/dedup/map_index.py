"""The index `map`: `RecentIds.java`, shared by the tasks of the one JVM. The writing query asks it row by row."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from typing_extensions import override

from headrace_lake.dedup.index import DUPLICATE, PLACE, TIME, DedupIndex, IndexState, WriteRows, landed
from headrace_lake.rows.decode import FAULT
from headrace_lake.spark.jvm import define, java_array, java_class
from headrace_lake.tables.append import scala_list

_SQL: Final = "org.apache.spark.sql"


def function_of(spark: SparkSession, ids: Any) -> Any:
    """Returns a Spark function that asks `ids`, a `RecentIds`, without encoders: Spark would analyse them for every batch."""
    named = partial(java_class, spark)
    boolean, none = named(f"{_SQL}.types.DataTypes").BooleanType, named("scala.Option").empty()
    ask, deterministic = named(f"{_SQL}.internal.ToScalaUDF").apply(ids), False  # so Spark neither repeats nor moves it
    made = named(f"{_SQL}.expressions.SparkUserDefinedFunction")
    return made(ask, boolean, scala_list(spark, []), none, none, True, deterministic)


class MapIndex(DedupIndex):
    """Checks ids in the JVM while the batch is written."""

    def __init__(self, spark: SparkSession, lake: str, topic_id: str, horizon: int, most: int) -> None:
        """`horizon` in ms, `most` in bytes. Raises `CompilerError`."""
        self._spark = spark
        self._lake = lake
        self._topic_id = topic_id
        self._class = define(spark, __package__, "RecentIds")
        self._ids: Any = self._class(horizon, most)
        columns = [java_class(spark, f"{_SQL}.functions").expr(each) for each in ("binary(event_id)", TIME, PLACE)]
        # Whether a row with the columns `ASKED` is a duplicate; what is not is added. Made once: it takes many calls to the JVM.
        self._asked = Column(function_of(spark, self._ids).apply(java_array(spark, f"{_SQL}.Column", columns)))
        self._duplicate = sf.when(sf.col(FAULT).isNull(), self._asked).otherwise(sf.lit(False))

    @override
    def add_landed(self, since: int) -> None:
        """Reads the table in Spark's tasks; no row passes through Python."""
        rows = landed(self._spark, self._lake, since, self._topic_id).select(self._asked.alias("known"))
        rows.agg(sf.count_if("known")).collect()

    @override
    def deduplicate(self, decoded: DataFrame, write: WriteRows) -> dict[str, Any]:
        return write(decoded.withColumn(DUPLICATE, self._duplicate))

    @override
    def state(self) -> IndexState:
        forgotten_to = int(self._ids.forgottenTo())
        none = forgotten_to == self._class.NONE_FORGOTTEN
        return IndexState(int(self._ids.ids()), int(self._ids.bytes()), None if none else forgotten_to)

    @override
    def close(self) -> None:
        self._ids.close()
