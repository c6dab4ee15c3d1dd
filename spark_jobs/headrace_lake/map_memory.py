"""The way `map`: the memory is `RecentIds.java`, shared by the tasks of the one JVM, asked in the query that writes."""

from __future__ import annotations

from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace_lake import lookup
from headrace_lake.causes import chain
from headrace_lake.janino import define
from headrace_lake.jvm import call_static, java_array, java_class
from headrace_lake.memory import DUPLICATE, Glance, Kind, State, Write

_FUNCTIONS: Final = "org.apache.spark.sql.functions"
_UDF: Final = ("org.apache.spark.sql.api.java.UDF4", "org.apache.spark.sql.types.DataType")


def function_of(spark: SparkSession, ids: Any) -> Any:
    """Spark's function that asks `ids`, a `RecentIds`."""
    boolean = java_class(spark, "org.apache.spark.sql.types.DataTypes").BooleanType
    function = call_static(spark, _FUNCTIONS, "udf", _UDF, (ids, boolean))
    return function.asNondeterministic()  # Spark must neither repeat nor move it


class MapMemory:
    """As `memory.Memory`."""

    def __init__(self, spark: SparkSession, lake: str, topic_id: str, horizon: int, most: int) -> None:
        """`horizon` in ms, `most` in bytes. Raises `CompilerError`."""
        self._spark = spark
        self._lake = lake
        self._topic_id = topic_id
        self._horizon = horizon
        self._class = define(spark, "RecentIds")
        self._ids: Any = self._class(horizon, most)
        self._functions = java_class(spark, _FUNCTIONS)
        self._function = function_of(spark, self._ids)

    def rebuild(self, since: int) -> None:
        """As `Memory`: in Spark's tasks, no row passes through Python."""
        self._take(lookup.landed(self._spark, self._lake, since, self._topic_id), Kind.LANDED)

    def expire(self, keep_from: int) -> None:
        """As `Memory`."""
        self._ids.keepFrom(keep_from)

    def judged(self, decoded: DataFrame, glance: Glance | None, write: Write) -> dict[str, Any]:
        """As `Memory`. A batch that turns out to hold a republished `u.` id is given up before anything of it is committed,
        and done again when all that the batch and the table have of such ids is remembered.
        """
        try:
            return write(self._asked(decoded))
        except (Py4JJavaError, PySparkException) as error:
            if not any(self._class.UNRESOLVED in cause for cause in chain(error)):
                raise
        there, here = lookup.of_republished(self._spark, self._lake, decoded, self._horizon, self._topic_id)
        self._ids.resolved(True)
        try:
            self._take(there, Kind.LANDED)
            self._take(here, Kind.REPUBLISHED)
            return write(self._asked(decoded))
        finally:
            self._ids.resolved(False)

    def state(self) -> State:
        """As `Memory`."""
        ids = self._ids
        forgotten = int(ids.forgotten())
        return State(int(ids.ids()), int(ids.bytes()), forgotten, int(ids.forgottenTo()) if forgotten else None)

    def close(self) -> None:
        """As `Memory`."""
        self._ids.close()

    def _asked(self, decoded: DataFrame) -> DataFrame:
        kind = lookup.kind(uniques=self._ids.uniques() > 0)
        answer = self._call(lookup.TIME, lookup.place(), kind)
        return decoded.withColumn(DUPLICATE, sf.when(sf.expr(kind).isNotNull(), answer).otherwise(sf.lit(False)))

    def _take(self, rows: DataFrame, kind: Kind) -> None:
        told = rows.select(self._call("time", "place", str(int(kind))).alias("told"))
        told.agg(sf.count_if("told")).collect()

    def _call(self, *arguments: str) -> Column:
        """The function of the event's id, as bytes, and of `arguments`, as SQL."""
        columns = [self._functions.expr(argument) for argument in ("binary(event_id)", *arguments)]
        return Column(self._function.apply(java_array(self._spark, "org.apache.spark.sql.Column", columns)))
