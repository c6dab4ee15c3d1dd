"""Merges files of a Delta table into one whose rows are sorted, in the steps of Delta's OPTIMIZE.

OPTIMIZE itself merges some files in the order in which they come, or with ZORDER BY rewrites whole partitions: hours of a day
again and again, and no bound on the time. So this takes its steps (`OptimizeExecutor`, in the versions that `append` knows): the
same actions in the log, without a change of data, and Delta refuses the commit if one of the files was removed meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, cast

from pyspark.sql import DataFrame, SparkSession

from headrace_lake.spark.jvm import active_session, java_class
from headrace_lake.tables.append import DELTA, prepared

_NO_CHANGE: Final = {"dataChange": "false"}
"""Readers that follow the table skip such a commit: it moves rows only."""


def merge_sorted(spark: SparkSession, path: str, chosen: str, by: Sequence[str]) -> None:
    """Merges the files of the table at `path` that meet `chosen` into one, sorted `by` columns. Blocks.

    `chosen`: a condition on the log's entries (`size`, `partitionValues.day`), for files of one partition. `by` begins with the
    partition's column: Delta's writer would sort by it again. Does nothing if fewer than two files meet the condition. What does
    not fit in memory during the sort is spilled to local disk.
    """
    session = cast("Any", spark)._jsparkSession
    scala = java_class(spark, "org.apache.spark.api.python.PythonUtils")
    none = java_class(spark, "scala.Option").empty()
    log = java_class(spark, f"{DELTA}.DeltaLog").forTable(session, path)
    with active_session(spark, session):
        transaction = log.startTransaction(none, none)
        snapshot = transaction.snapshot()
        files = snapshot.allFiles().filter(chosen).collectAsList()
        if files.size() < 2:
            return
        merged = scala.toSeq(files)
        transaction.trackFilesRead(merged)
        rows = DataFrame(log.createDataFrame(snapshot, merged, False, none), spark)
        rows = rows.coalesce(1).sortWithinPartitions(*by)
        written = prepared(spark, log, rows, _NO_CHANGE).writeAndReturnCommitData(transaction, session, none, False)
        actions = java_class(spark, "java.util.ArrayList")()
        added = written.actions().iterator()
        while added.hasNext():
            actions.add(added.next())
        now = round(time.time() * 1000)
        for file in files:
            actions.add(file.removeWithTimestamp(now, False))
        nothing = scala.toSeq([])
        operation = java_class(spark, f"{DELTA}.DeltaOperations$Optimize")(nothing, nothing, False, none, False)
        transaction.commit(scala.toSeq(actions), operation)
