"""Appends to a Delta table under a transaction version.

Delta's writer first asks the table for the version that its application has written last, and for that gathers the state of
the whole table: a Spark job in every commit, most of what a small commit costs. Whoever writes here follows the log anyway
and has the answer. So the steps of Delta's writer (`WriteIntoDelta.run` of the versions in `_KNOWN`) are taken one by one with
that answer in the place of the job. What makes a commit fail that another of the same application has overtaken stays: the
application's name among what the transaction has read. With any other version of Delta its writer is called as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from pyspark.sql import DataFrame, SparkSession

from headrace_lake.jvm import java_class

_KNOWN: Final = ("4.4.0",)
_DELTA: Final = "org.apache.spark.sql.delta"


class Appender:
    """Appends under the transaction versions of the application `app_id`."""

    def __init__(self, spark: SparkSession, app_id: str) -> None:
        self._spark = spark
        self._app_id = app_id

    def stepwise(self) -> bool:
        """Whether this version of Delta is one whose steps are known."""
        return java_class(self._spark, "io.delta.package").VERSION() in _KNOWN

    def append(self, path: str, rows: DataFrame, version: int, token: str, latest: Callable[[], int]) -> None:
        """Appends `rows`, all or none; no rows commit the version alone. `token` becomes the commit's `userMetadata`.

        Does nothing when the table has this version, or a later one, already; `latest` says which it has, as of now. Fails
        with Delta's ConcurrentTransactionException when another commit of the application comes in between. Blocks.
        """
        if self.stepwise():
            self._take_steps(path, rows, version, token, latest)
            return
        writer = rows.write.format("delta").mode("append").option("userMetadata", token)
        writer.option("txnAppId", self._app_id).option("txnVersion", version).save(path)

    def _take_steps(self, path: str, rows: DataFrame, version: int, token: str, latest: Callable[[], int]) -> None:
        spark = cast("Any", rows.sparkSession)._jsparkSession
        scala = java_class(self._spark, "org.apache.spark.api.python.PythonUtils")
        option = java_class(self._spark, "scala.Option")
        mode = java_class(self._spark, "org.apache.spark.sql.SaveMode").Append
        none, nothing, no_entries = option.empty(), scala.toSeq([]), scala.toScalaMap({})
        settings = {"txnAppId": self._app_id, "txnVersion": str(version), "userMetadata": token}
        options = java_class(self._spark, f"{_DELTA}.DeltaOptions")(
            scala.toScalaMap(settings), spark.sessionState().conf()
        )
        log = java_class(self._spark, f"{_DELTA}.DeltaLog").forTable(spark, path)
        write = java_class(self._spark, f"{_DELTA}.commands.WriteIntoDelta")(
            log, mode, options, nothing, no_entries, cast("Any", rows)._jdf, none, none, False
        )
        transaction = log.startTransaction(none, none)
        getattr(transaction.readTxn(), "$plus$eq")(self._app_id)
        if latest() >= version:  # asked only now: what comes later than the transaction's beginning makes it fail
            return
        data = write.writeAndReturnCommitData(transaction, spark, none, False)
        operation = java_class(self._spark, f"{_DELTA}.DeltaOperations$Write")(
            mode, option.apply(nothing), none, option.apply(token), none, none, none, none, none
        )
        transaction.commitIfNeeded(data.actions(), operation, data.stringTags())
