"""Appends to a Delta table under a transaction version.

Delta's writer first asks the table for the last version of its application. For that it computes the state of the whole
table: a Spark job in every commit, and most of the cost of a small one. Our callers follow the log anyway and know the answer.
So `Appender` takes the steps of Delta's writer (`WriteIntoDelta.run` of `engine.DELTA_VERSION`) one by one, with that answer
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace_lake.spark.jvm import active_session, java_class
from headrace_lake.spark.storage import Storage, local_path
from headrace_lake.tables.layout import DAY, KEY
from headrace_lake.tables.statistics import statistics

DELTA: Final = "org.apache.spark.sql.delta"
_KINDS: Final = {
    "long": pa.int64(),
    "integer": pa.int32(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
}
"""Delta's name of a column's type -> Arrow's type, of the columns that rows of Python's may have."""


def prepared(spark: SparkSession, log: Any, rows: DataFrame, settings: Mapping[str, str]) -> Any:
    """Returns Delta's own append of `rows` to the table of `log`, not run yet; `settings`: options of its writer."""
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


def arrow_rows(values: Sequence[Mapping[str, Any]], schema: StructType) -> pa.Table:
    """Returns `values` as rows of `schema` that `Appender.append` writes without a query."""
    fields = [(field.name, _KINDS[field.dataType.typeName()]) for field in schema.fields]
    return pa.Table.from_pylist(values, schema=pa.schema(fields))


def new_name(day: str) -> str:
    """Returns the name of a new data file, of the partition `day` if the table has days."""
    name = f"part-00000-{uuid.uuid4()}-c000.zstd.parquet"
    return f"day={day}/{name}" if day else name


def actions_of(spark: SparkSession, actions: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Returns Delta's objects for `actions`, each as a line of the log has it."""
    kinds = getattr(java_class(spark, f"{DELTA}.actions.Action$"), "MODULE$")
    return [kinds.fromJson(json.dumps(action, ensure_ascii=False)) for action in actions]


class Appender:
    """Appends under the transaction versions of the application `app_id`."""

    def __init__(self, spark: SparkSession, app_id: str) -> None:
        self._spark = spark
        self._app_id = app_id

    def append(
        self,
        path: str,
        rows: DataFrame | pa.Table | None,
        version: int,
        token: str,
        latest: Callable[[], int],
        accept: Callable[[Sequence[str]], None] | None = None,
    ) -> None:
        """Appends `rows`, all or none; without any, or with None, it commits the version alone.

        `token` becomes the commit's `userMetadata`.

        Does nothing if the table already has this version or a later one; `latest` returns the table's current version. `accept`
        gets the paths of the files before they are committed; if it raises, they are not.
        Fails with Delta's ConcurrentTransactionException if another commit of the application comes in between. Blocks.
        """
        session = rows.sparkSession if isinstance(rows, DataFrame) else self._spark
        spark = cast("Any", session)._jsparkSession
        scala = java_class(self._spark, "org.apache.spark.api.python.PythonUtils")
        option = java_class(self._spark, "scala.Option")
        mode = java_class(self._spark, "org.apache.spark.sql.SaveMode").Append
        none, nothing = option.empty(), scala.toSeq([])
        settings = {"txnAppId": self._app_id, "txnVersion": str(version), "userMetadata": token}
        log = java_class(self._spark, f"{DELTA}.DeltaLog").forTable(spark, path)
        # As Delta's own writer does: Delta reads a new checkpoint with the thread's session, and a thread
        # of our own has none.
        with active_session(self._spark, spark):
            transaction = log.startTransaction(none, none)
            getattr(transaction.readTxn(), "$plus$eq")(self._app_id)
            if latest() >= version:  # only now: a commit after the start of the transaction makes it fail
                return
            txn = {"txn": {"appId": self._app_id, "version": version, "lastUpdated": round(time.time() * 1000)}}
            tags = scala.toScalaMap({})
            if rows is None:
                actions = scala.toSeq(actions_of(self._spark, [txn]))
            elif isinstance(rows, pa.Table) and _fits(rows, str(transaction.metadata().schemaString())):
                actions = scala.toSeq(actions_of(self._spark, [txn, self._written(path, rows)]))
            else:
                write = prepared(self._spark, log, self._frame(rows), settings)
                data = write.writeAndReturnCommitData(transaction, spark, none, False)
                actions, tags = data.actions(), data.stringTags()
                if accept is not None:
                    accept([f"{path}/{unquote(name)}" for name in _names(actions)])
            operation = java_class(self._spark, f"{DELTA}.DeltaOperations$Write")(
                mode, option.apply(nothing), none, option.apply(token), none, none, none, none, none
            )
            transaction.commitIfNeeded(actions, operation, tags)

    def _frame(self, rows: DataFrame | pa.Table) -> DataFrame:
        return rows if isinstance(rows, DataFrame) else self._spark.createDataFrame(rows).coalesce(1)

    def _written(self, path: str, rows: pa.Table) -> Mapping[str, Any]:
        """Returns the action that adds the file of `rows`, written now. A file that is not committed stays for vacuum."""
        day = str(rows[DAY][0]) if DAY in rows.column_names else ""  # all are of one batch
        rows = rows.drop_columns([DAY]) if day else rows
        storage, name = Storage(self._spark), new_name(day)
        with tempfile.TemporaryDirectory(prefix="headrace-rows-") as folder:
            local = storage.scheme(path) == "file"
            file = Path(local_path(f"{path}/{name}") if local else f"{folder}/rows")
            file.parent.mkdir(exist_ok=True)
            pq.write_table(rows, file, compression="zstd", compression_level=1, store_schema=False)
            size, counted = file.stat().st_size, statistics(file, KEY)
            if not local:
                storage.upload(str(file), f"{path}/{name}")
        added = {
            "path": name, "partitionValues": {DAY: day} if day else {}, "size": size,
            "modificationTime": round(time.time() * 1000), "dataChange": True, "stats": json.dumps(counted),
        }  # fmt: skip
        return {"add": added}


def _names(actions: Any) -> Iterator[str]:
    """Yields the names of the files that Delta's `actions` add."""
    each = actions.iterator()
    while each.hasNext():
        if (added := each.next().wrap().add()) is not None:
            yield added.path()


def _fits(rows: pa.Table, schema: str) -> bool:
    """Returns whether the table with this `schema` has the columns of `rows`. If not, Spark's own error tells more."""
    there = {field["name"]: _KINDS.get(str(field["type"])) for field in json.loads(schema)["fields"]}
    return all(there.get(column.name) == column.type for column in rows.schema)
