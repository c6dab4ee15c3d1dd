"""Appends to a Delta table under a transaction version.

Delta's writer first asks the table for the last version of its application. For that it computes the state of the whole
table: a Spark job in every commit, and most of the cost of a small one. Our callers follow the log anyway and know the answer.
So `append` takes the steps of Delta's writer (`WriteIntoDelta.run` of `engine.DELTA_VERSION`) one by one, with that answer
instead of the job. One step must stay: the transaction still reads the application's version, so that a commit fails if
another of the same application overtook it.

A few rows that Python has, such as a batch's lines of `batches`, are written by Arrow: to plan and run a query for them takes
Spark longer than all else of their commit.
"""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace_lake.spark.jvm import java_class
from headrace_lake.spark.storage import Storage, local_path
from headrace_lake.tables.layout import DAY, KEY
from headrace_lake.tables.statistics import statistics

DELTA: Final = "org.apache.spark.sql.delta"
_SCALA: Final = "org.apache.spark.api.python.PythonUtils"
_KINDS: Final = {
    "long": pa.int64(),
    "integer": pa.int32(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
}
"""Delta's name of a column's type -> Arrow's type, of the columns that rows of Python's may have."""


@contextmanager
def begun(spark: SparkSession, path: str) -> Iterator[Any]:
    """Yields a transaction of Delta on the table at `path`, begun now.

    Delta reads a new checkpoint with the session of the JVM's thread, and a thread of our own has none: as Delta's own writer,
    this makes `spark` that session meanwhile.
    """
    session, none = cast("Any", spark)._jsparkSession, java_class(spark, "scala.Option").empty()
    sessions = java_class(spark, "org.apache.spark.sql.classic.SparkSession")
    before = sessions.getActiveSession()
    sessions.setActiveSession(session)
    try:
        yield java_class(spark, f"{DELTA}.DeltaLog").forTable(session, path).startTransaction(none, none)
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def scala_list(spark: SparkSession, values: Sequence[Any]) -> Any:
    """Returns Scala's list of `values`."""
    return java_class(spark, _SCALA).toSeq(list(values))


def arrow_rows(values: Sequence[Mapping[str, Any]], schema: StructType) -> pa.Table:
    """Returns `values` as rows of `schema` that `append` writes without a query."""
    fields = [(field.name, _KINDS[field.dataType.typeName()]) for field in schema.fields]
    return pa.Table.from_pylist(values, schema=pa.schema(fields))


def written(
    spark: SparkSession, path: str, day: str, ranged: Collection[str], write: Callable[[Path], None], *, change: bool
) -> Mapping[str, Any]:
    """Returns the action that adds a new file to the table at `path`, of the partition `day` if that is not empty.

    `write` makes the file; `ranged`: the columns whose ranges the log gets; `change`: whether it brings rows. A file that is not
    committed stays for vacuum.
    """
    storage, name = Storage(spark), f"part-00000-{uuid.uuid4()}-c000.zstd.parquet"
    name = f"{DAY}={day}/{name}" if day else name
    with tempfile.TemporaryDirectory(prefix="headrace-rows-") as folder:
        local = storage.scheme(path) == "file"
        file = Path(local_path(f"{path}/{name}") if local else f"{folder}/rows")
        file.parent.mkdir(exist_ok=True)
        write(file)
        size, counted = file.stat().st_size, statistics(file, ranged)
        if not local:
            storage.upload(str(file), f"{path}/{name}")
    added = {
        "path": name, "partitionValues": {DAY: day} if day else {}, "size": size,
        "modificationTime": round(time.time() * 1000), "dataChange": change, "stats": json.dumps(counted, ensure_ascii=False),
    }  # fmt: skip
    return {"add": added}


def actions_of(spark: SparkSession, actions: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Returns Delta's objects for `actions`, each as a line of the log has it."""
    kinds = getattr(java_class(spark, f"{DELTA}.actions.Action$"), "MODULE$")
    return [kinds.fromJson(json.dumps(action, ensure_ascii=False)) for action in actions]


def append(
    spark: SparkSession,
    app_id: str,
    path: str,
    rows: DataFrame | pa.Table | None,
    version: int,
    token: str,
    latest: Callable[[], int],
    accept: Callable[[Sequence[str]], None] | None = None,
) -> None:
    """Appends `rows` under a transaction version of the application `app_id`, all or none; without any, or with None, it commits
    the version alone.

    `token` becomes the commit's `userMetadata`.

    Does nothing if the table already has this version or a later one; `latest` returns the table's current version. `accept`
    gets the paths of the files before they are committed; if it raises, they are not.
    Fails with Delta's ConcurrentTransactionException if another commit of the application comes in between. Blocks.
    """
    session = rows.sparkSession if isinstance(rows, DataFrame) else spark
    option, scala = java_class(session, "scala.Option"), java_class(session, _SCALA)
    mode = java_class(session, "org.apache.spark.sql.SaveMode").Append
    none, nothing = option.empty(), scala_list(session, [])
    with begun(session, path) as transaction:
        getattr(transaction.readTxn(), "$plus$eq")(app_id)
        if latest() >= version:  # only now: a commit after the start of the transaction makes it fail
            return
        txn = {"txn": {"appId": app_id, "version": version, "lastUpdated": round(time.time() * 1000)}}
        tags = scala.toScalaMap({})
        if rows is None:
            actions = scala_list(session, actions_of(session, [txn]))
        elif isinstance(rows, pa.Table):
            actions = scala_list(session, actions_of(session, [txn, _added(session, path, rows)]))
        else:
            java = cast("Any", session)._jsparkSession
            settings = {"txnAppId": app_id, "txnVersion": str(version), "userMetadata": token}
            options = java_class(session, f"{DELTA}.DeltaOptions")(
                scala.toScalaMap(settings), java.sessionState().conf()
            )
            write = java_class(session, f"{DELTA}.commands.WriteIntoDelta")(
                transaction.deltaLog(), mode, options, nothing, tags, cast("Any", rows)._jdf, none, none, False
            )
            data = write.writeAndReturnCommitData(transaction, java, none, False)
            actions, tags = data.actions(), data.stringTags()
            if accept is not None:
                accept([f"{path}/{unquote(name)}" for name in _names(actions)])
        operation = java_class(session, f"{DELTA}.DeltaOperations$Write")(
            mode, option.apply(nothing), none, option.apply(token), none, none, none, none, none
        )
        transaction.commitIfNeeded(actions, operation, tags)


def _added(spark: SparkSession, path: str, rows: pa.Table) -> Mapping[str, Any]:
    """Returns the action that adds a file of `rows`, written now."""
    day = str(rows[DAY][0]) if DAY in rows.column_names else ""  # all are of one batch
    rows = rows.drop_columns([DAY]) if day else rows

    def write(file: Path) -> None:
        pq.write_table(rows, file, compression="zstd", compression_level=1, store_schema=False)

    return written(spark, path, day, KEY, write, change=True)


def _names(actions: Any) -> Iterator[str]:
    """Yields the names of the files that Delta's `actions` add."""
    each = actions.iterator()
    while each.hasNext():
        if (added := each.next().wrap().add()) is not None:
            yield added.path()
