"""Appends to a Delta table under a transaction version.

Delta's writer first asks the table for the last version of its application. For that it computes the state of the whole
table: a Spark job in every commit, and most of the cost of a small one. Our callers follow the log anyway and know the answer.
So `Appender` takes the steps of Delta's writer (`WriteIntoDelta.run`, in the versions in `_KNOWN`) one by one, with that answer
instead of the job. One step must stay: the transaction still reads the application's version, so that a commit fails if
another of the same application overtook it. With any other version of Delta, `Appender` calls Delta's own writer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from pyspark.sql import DataFrame, SparkSession

from headrace_lake.spark.jvm import active_session, java_class

_KNOWN: Final = ("4.4.0",)
DELTA: Final = "org.apache.spark.sql.delta"


def stepwise(spark: SparkSession) -> bool:
    """Whether we know the steps of this version of Delta."""
    return java_class(spark, "io.delta.package").VERSION() in _KNOWN


def prepared(spark: SparkSession, log: Any, rows: DataFrame, settings: Mapping[str, str]) -> Any:
    """Delta's own append of `rows` to the table of `log`, not run yet; `settings`: options of its writer."""
    scala = java_class(spark, "org.apache.spark.api.python.PythonUtils")
    none = java_class(spark, "scala.Option").empty()
    session = cast("Any", rows.sparkSession)._jsparkSession
    options = java_class(spark, f"{DELTA}.DeltaOptions")(
        scala.toScalaMap(dict(settings)), session.sessionState().conf()
    )
    return java_class(spark, f"{DELTA}.commands.WriteIntoDelta")(
        log, java_class(spark, "org.apache.spark.sql.SaveMode").Append, options, scala.toSeq([]), scala.toScalaMap({}),
        cast("Any", rows)._jdf, none, none, False,
    )  # fmt: skip


class Appender:
    """Appends under the transaction versions of the application `app_id`."""

    def __init__(self, spark: SparkSession, app_id: str) -> None:
        self._spark = spark
        self._app_id = app_id

    def append(self, path: str, rows: DataFrame, version: int, token: str, latest: Callable[[], int]) -> None:
        """Appends `rows`, all or none; without rows it commits the version alone. `token` becomes the commit's `userMetadata`.

        Does nothing if the table already has this version or a later one; `latest` returns the table's current version.
        Fails with Delta's ConcurrentTransactionException if another commit of the application comes in between. Blocks.
        """
        if stepwise(self._spark):
            self._take_steps(path, rows, version, token, latest)
            return
        writer = rows.write.format("delta").mode("append").option("userMetadata", token)
        writer.option("txnAppId", self._app_id).option("txnVersion", version).save(path)

    def _take_steps(self, path: str, rows: DataFrame, version: int, token: str, latest: Callable[[], int]) -> None:
        spark = cast("Any", rows.sparkSession)._jsparkSession
        scala = java_class(self._spark, "org.apache.spark.api.python.PythonUtils")
        option = java_class(self._spark, "scala.Option")
        mode = java_class(self._spark, "org.apache.spark.sql.SaveMode").Append
        none, nothing = option.empty(), scala.toSeq([])
        settings = {"txnAppId": self._app_id, "txnVersion": str(version), "userMetadata": token}
        log = java_class(self._spark, f"{DELTA}.DeltaLog").forTable(spark, path)
        write = prepared(self._spark, log, rows, settings)
        # As Delta's own writer does: Delta reads a checkpoint that it has not read yet with the thread's session, and a thread
        # of our own has none.
        with active_session(self._spark, spark):
            transaction = log.startTransaction(none, none)
            getattr(transaction.readTxn(), "$plus$eq")(self._app_id)
            if latest() >= version:  # only now: a commit after the start of the transaction makes it fail
                return
            data = write.writeAndReturnCommitData(transaction, spark, none, False)
            operation = java_class(self._spark, f"{DELTA}.DeltaOperations$Write")(
                mode, option.apply(nothing), none, option.apply(token), none, none, none, none, none
            )
            transaction.commitIfNeeded(data.actions(), operation, data.stringTags())
