"""Changes to the properties of a table, and commits that Delta refuses because the table is being altered or its files merged."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace_lake.spark.jvm import active_session, java_class
from headrace_lake.spark.literals import quoted
from headrace_lake.tables.append import DELTA, stepwise

COMMENT: Final = "comment"
"""The table's description, among its properties."""
_ATTEMPTS: Final = 5
_ALTERED: Final = re.compile(
    r"(Metadata|Protocol)ChangedException|DELTA_(METADATA|PROTOCOL)_CHANGED"
    r"|Concurrent(Append|Delete\w+)Exception|DELTA_CONCURRENT_(APPEND|DELETE)"
)

Properties = Mapping[str, str]


def unless_altered(commit: Callable[[], object]) -> None:
    """Calls `commit`, again if properties, columns or protocol of the table changed meanwhile, or files that it has read were
    merged: nothing was committed then.

    Raises what `commit` raises for any other reason, and after a few attempts.
    """
    for left in reversed(range(_ATTEMPTS)):
        try:
            commit()
            return
        except (Py4JJavaError, PySparkException) as error:
            if not left or _ALTERED.search(str(error)) is None:
                raise


def set_properties(spark: SparkSession, path: str, wanted: Properties) -> None:
    """Sets those of the properties `wanted` that the table at `path` has not, in a commit of their own. Blocks on storage."""
    change_properties(spark, path, lambda _: wanted)


def change_properties(spark: SparkSession, path: str, change: Callable[[Properties], Properties]) -> None:
    """Sets the properties that `change` makes of those of the table at `path`, unless it has them. Blocks on storage.

    `change` is called again if the table was altered since they were read: no change that another job makes is lost.
    """

    def compared() -> None:
        have, alter = _opened(spark, path)
        if wanted := {key: value for key, value in change(have).items() if have.get(key) != value}:
            alter(wanted)

    unless_altered(compared)


def _opened(spark: SparkSession, path: str) -> tuple[Properties, Callable[[Properties], object]]:
    """Returns the table's properties, and a function that sets some unless the table was altered since they were read.

    Delta's `ALTER TABLE` reads the table again before it commits, so it cannot see earlier changes. It is used for
    versions of Delta whose steps we do not know.
    """
    if not stepwise(spark):
        ((have, said),) = spark.sql(f"DESCRIBE DETAIL delta.`{path}`").select("properties", "description").collect()

        def alter_now(wanted: Properties) -> object:
            listed = ", ".join(f"'{name}' = {quoted(value)}" for name, value in wanted.items())
            return spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({listed})")

        return {**have, COMMENT: said}, alter_now
    session = cast("Any", spark)._jsparkSession
    scala = java_class(spark, "org.apache.spark.api.python.PythonUtils")
    none = java_class(spark, "scala.Option").empty()
    folder = java_class(spark, "org.apache.hadoop.fs.Path")(path)
    with active_session(spark, session):
        table = java_class(spark, f"{DELTA}.catalog.DeltaTableV2")(
            session, folder, none, none, none, scala.toScalaMap({})
        )
        have = dict(table.properties())

    def alter(wanted: Properties) -> object:
        with active_session(spark, session):
            transaction = table.startTransactionWithInitialSnapshot()
            now = transaction.metadata()
            described, configuration = now.description(), now.configuration()
            for name, value in wanted.items():
                if name == COMMENT:
                    described = value
                else:
                    configuration = configuration.updated(name, value)
            metadata = now.copy(
                now.id(), now.name(), described, now.format(), now.schemaString(), now.partitionColumns(), configuration,
                now.createdTime(),
            )  # fmt: skip
            transaction.updateMetadata(metadata, False)
            operation = java_class(spark, f"{DELTA}.DeltaOperations$SetTableProperties")(scala.toScalaMap(dict(wanted)))
            return transaction.commit(scala.toSeq([]), operation)

    return have, alter
