"""The index `map`: `RecentIds.java`, shared by the tasks of the one JVM. The writing query asks it row by row."""

from __future__ import annotations

from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from typing_extensions import override

from headrace_lake.dedup import lookup
from headrace_lake.dedup.index import DUPLICATE, DedupIndex, IdKind, IndexState, WriteRows
from headrace_lake.spark.causes import chain
from headrace_lake.spark.jvm import call_method, define, java_array, java_class

_FUNCTIONS: Final = "org.apache.spark.sql.functions"
_UDF: Final = ("org.apache.spark.sql.api.java.UDF4", "org.apache.spark.sql.types.DataType")


def function_of(spark: SparkSession, ids: Any) -> Any:
    """Returns a Spark function that asks `ids`, a `RecentIds`."""
    boolean = java_class(spark, "org.apache.spark.sql.types.DataTypes").BooleanType
    function = call_method(spark, _FUNCTIONS, "udf", _UDF, (ids, boolean))
    return function.asNondeterministic()  # so that Spark neither repeats nor moves it


class MapIndex(DedupIndex):
    """Checks ids in the JVM while the batch is written."""

    def __init__(self, spark: SparkSession, lake: str, topic_id: str, horizon: int, most: int) -> None:
        """`horizon` in ms, `most` in bytes. Raises `CompilerError`."""
        self._spark = spark
        self._lake = lake
        self._topic_id = topic_id
        self._horizon = horizon
        self._class = define(spark, __package__, "RecentIds")
        self._ids: Any = self._class(horizon, most)
        self._functions = java_class(spark, _FUNCTIONS)
        self._function = function_of(spark, self._ids)

    @override
    def add_landed(self, since: int) -> None:
        """Reads the table in Spark's tasks; no row passes through Python."""
        self._take(lookup.landed(self._spark, self._lake, since, self._topic_id), IdKind.LANDED)

    @override
    def deduplicate(self, decoded: DataFrame, write: WriteRows) -> dict[str, Any]:
        """Deduplicates a batch. If it holds a republished `u.` id, the query fails before it commits anything.

        Then the index adds all events with such ids, from the table and from the batch, and the batch is done again.
        """
        try:
            return write(self._asked(decoded))
        except (Py4JJavaError, PySparkException) as error:
            if not any(self._class.UNRESOLVED in cause for cause in chain(error)):
                raise
        there, here = lookup.of_republished(self._spark, self._lake, decoded, self._horizon, self._topic_id)
        self._ids.resolved(True)
        try:
            self._take(there, IdKind.LANDED)
            self._take(here, IdKind.REPUBLISHED)
            return write(self._asked(decoded))
        finally:
            self._ids.resolved(False)

    @override
    def state(self) -> IndexState:
        forgotten_to = int(self._ids.forgottenTo())
        none = forgotten_to == self._class.NONE_FORGOTTEN
        return IndexState(int(self._ids.ids()), int(self._ids.bytes()), None if none else forgotten_to)

    @override
    def close(self) -> None:
        self._ids.close()

    def _asked(self, decoded: DataFrame) -> DataFrame:
        kind = lookup.kind(uniques=self._ids.uniques() > 0)
        answer = self._call(lookup.TIME, lookup.place(), kind)
        return decoded.withColumn(DUPLICATE, sf.when(sf.expr(kind).isNotNull(), answer).otherwise(sf.lit(False)))

    def _take(self, rows: DataFrame, kind: IdKind) -> None:
        asked = rows.select(self._call("time", "place", str(int(kind))).alias("duplicate"))
        asked.agg(sf.count_if("duplicate")).collect()

    def _call(self, *arguments: str) -> Column:
        """Calls the function with the event's id as bytes, and with `arguments` as SQL."""
        columns = [self._functions.expr(argument) for argument in ("binary(event_id)", *arguments)]
        return Column(self._function.apply(java_array(self._spark, "org.apache.spark.sql.Column", columns)))
