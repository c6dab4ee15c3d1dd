"""Compaction: replaces files of a Delta table by one with the same rows, sorted.

Arrow writes the new file. The commit takes the steps of Delta's OPTIMIZE
(`OptimizeExecutor`, in the version that `append` knows): the same actions in the log, without a change of data, and Delta
refuses it if one of the files was removed meanwhile. OPTIMIZE itself merges files in the order in which they come, or with
ZORDER BY rewrites whole partitions: hours of a day again and again.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast
from urllib.parse import unquote

from pyspark.sql import SparkSession

from headrace_lake.spark.engine import UNLIKE, ZSTD_LEVEL
from headrace_lake.spark.jvm import active_session, java_class
from headrace_lake.spark.storage import Storage, local_path
from headrace_lake.tables.append import DELTA, actions_of, new_name
from headrace_lake.tables.layout import DAY, DUPLICATES, QUARANTINE, STATISTICS
from headrace_lake.tables.statistics import statistics
from headrace_lake.tables.transaction_log import LiveFiles
from headrace_lake.upkeep.merging.choice import Piece
from headrace_lake.upkeep.merging.parquet_merge import Form, check, merge_files

Check = Callable[[], bool]

_MERGED_LEVEL: Final = 3  # at least, for merged files: they stay, while a batch's files are soon replaced

_ROW_GROUP: Final = 4 << 20
"""Bytes of a row group in merged files, compressed: a reader skips a row group whose ranges do not meet its filter."""

_BLOCK_SIZE: Final = "parquet.block.size"
_BY_EVENT_TIME: Final = ("stream", "event_time")
_SORTED_BY: Final = {QUARANTINE: ("stream", "received_time"), DUPLICATES: ("partition", "offset")}
"""The order of rows in merged files of a table with days, if it is another."""


class Files(NamedTuple):
    """Files of one `day` of the table at `path` (of all of it, if it has no days): name in the log -> bytes."""

    path: str
    day: str
    sizes: Mapping[str, int]


def merge(
    spark: SparkSession, path: str, piece: Piece, table: LiveFiles, going_on: Callable[[], bool] = lambda: True
) -> int:
    """Merges the files of `piece` in `table`, which is at `path`. Readers see the same rows before and after. Blocks.

    Returns the bytes of the new file. Nothing happens, and 0 is returned, if the table lacks one of the files by now. Raises
    `InterruptedMergeError` once `going_on` says no, and `ValueError` for files that Arrow cannot merge.
    """
    given = cast("Any", spark)._jsc.hadoopConfiguration()
    level = max(int(given.get(ZSTD_LEVEL, "0")), _MERGED_LEVEL)
    row_group = int(given.get(_BLOCK_SIZE, str(_ROW_GROUP)))
    by = _SORTED_BY.get(piece.table, _BY_EVENT_TIME) if piece.day else ()

    def there() -> bool:
        table.latest()
        return table.has(piece.files)

    if not there():
        return 0
    files = Files(path, piece.day, {name: table.files[name].size for name in piece.files})
    form = Form(by, level, row_group, plain=UNLIKE)
    ranged = [name.strip(" `") for name in table.properties.get(STATISTICS, "").split(",")]
    return replace(spark, files, form, ranged, there=there, going_on=going_on)


def replace(
    spark: SparkSession, files: Files, form: Form, ranged: Collection[str], *, there: Check, going_on: Check
) -> int:
    """Replaces `files` by one. Blocks. Returns its bytes.

    `ranged`: the columns whose ranges the log gets. `there` reads the table's log and says whether it has all the files
    still; if not, nothing is committed, and 0 returned. Raises like `merge`. A file that is not committed stays for vacuum: after
    an error of the commit, the log may name it.
    """
    storage = Storage(spark)
    local = storage.scheme(files.path) == "file"
    with tempfile.TemporaryDirectory(prefix="headrace-merge-") as name:
        sources = [storage.local(f"{files.path}/{unquote(file)}", Path(name)) for file in files.sizes]
        check(sources)
        new = new_name(files.day)
        output = Path(local_path(f"{files.path}/{new}") if local else f"{name}/merged")
        merge_files(sources, output, form, going_on)
        size, counted = output.stat().st_size, statistics(output, ranged)
        if not local:
            storage.upload(str(output), f"{files.path}/{new}")
    session, log = _log(spark, files.path)
    with active_session(spark, session):
        transaction = _begin(spark, log)
        if not there():  # only now: Delta refuses the commit if a file is removed after the start of the transaction
            return 0
        added = _entry(spark, new, files.day, size, json.dumps(counted, ensure_ascii=False))
        removed = [_entry(spark, name, files.day, size, None) for name, size in files.sizes.items()]
        _commit(spark, transaction, removed, [added])
    return size


def _commit(spark: SparkSession, transaction: Any, removed: Sequence[Any], added: Iterable[Any]) -> None:
    transaction.trackFilesRead(_seq(spark, removed))
    now = round(time.time() * 1000)
    actions = [*added, *(file.removeWithTimestamp(now, False) for file in removed)]
    nothing = _seq(spark, [])
    operation = java_class(spark, f"{DELTA}.DeltaOperations$Optimize")(nothing, nothing, False, _none(spark), False)
    transaction.commit(_seq(spark, actions), operation)


def _entry(spark: SparkSession, name: str, day: str, size: int, statistics: str | None) -> Any:
    """Returns Delta's AddFile."""
    fields: dict[str, Any] = {
        "path": name,
        "partitionValues": {DAY: day} if day else {},
        "size": size,
        "modificationTime": round(time.time() * 1000),
        "dataChange": False,
    }
    if statistics is not None:
        fields["stats"] = statistics
    return actions_of(spark, [{"add": fields}])[0]


def _log(spark: SparkSession, path: str) -> tuple[Any, Any]:
    session = cast("Any", spark)._jsparkSession
    return session, java_class(spark, f"{DELTA}.DeltaLog").forTable(session, path)


def _begin(spark: SparkSession, log: Any) -> Any:
    return log.startTransaction(_none(spark), _none(spark))


def _none(spark: SparkSession) -> Any:
    return java_class(spark, "scala.Option").empty()


def _seq(spark: SparkSession, values: Sequence[Any]) -> Any:
    return java_class(spark, "org.apache.spark.api.python.PythonUtils").toSeq(list(values))
