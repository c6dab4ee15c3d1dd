"""Compaction: replaces files of a Delta table by one with the same rows, sorted.

Arrow writes the new file. The commit takes the steps of Delta's OPTIMIZE
(`OptimizeExecutor`, in the version that `append` knows): the same actions in the log, without a change of data, and Delta
refuses it if one of the files was removed meanwhile. OPTIMIZE itself merges files in the order in which they come, or with
ZORDER BY rewrites whole partitions: hours of a day again and again.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote

from pyspark.sql import SparkSession

from headrace_lake.spark.engine import UNLIKE, ZSTD_LEVEL
from headrace_lake.spark.jvm import java_class
from headrace_lake.spark.storage import Storage
from headrace_lake.tables.append import DELTA, actions_of, begun, scala_list, written
from headrace_lake.tables.layout import DAY, DUPLICATES, QUARANTINE, STATISTICS
from headrace_lake.tables.transaction_log import LiveFiles
from headrace_lake.upkeep.merging.choice import Piece
from headrace_lake.upkeep.merging.parquet_merge import Form, merge_files

_MERGED_LEVEL: Final = 3  # at least, for merged files: they stay, while a batch's files are soon replaced

_ROW_GROUP: Final = 4 << 20
"""Bytes of a row group in merged files, compressed: a reader skips a row group whose ranges do not meet its filter."""

_BLOCK_SIZE: Final = "parquet.block.size"
_BY_EVENT_TIME: Final = ("stream", "event_time")
_SORTED_BY: Final = {QUARANTINE: ("stream", "received_time"), DUPLICATES: ("partition", "offset")}
"""The order of rows in merged files of a table with days, if it is another."""


def merge(spark: SparkSession, path: str, piece: Piece, table: LiveFiles) -> int:
    """Merges the files of `piece` in `table`, which is at `path`. Readers see the same rows before and after. Blocks.

    Returns the bytes of the new file. Nothing happens, and 0 is returned, if the table lacks one of the files by now.
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
    form = Form(by, level, row_group, plain=UNLIKE)
    ranged = [name.strip(" `") for name in table.metadata["configuration"].get(STATISTICS, "").split(",")]
    return replace(spark, path, piece, form, ranged, there=there)


def replace(
    spark: SparkSession, path: str, piece: Piece, form: Form, ranged: Collection[str], *, there: Callable[[], bool]
) -> int:
    """Replaces the files of `piece` by one. Blocks. Returns its bytes.

    `ranged`: the columns whose ranges the log gets. `there` reads the table's log and says whether it has all the files
    still; if not, nothing is committed, and 0 returned. A file that is not committed stays for vacuum: after an error of the
    commit, the log may name it.
    """
    storage = Storage(spark)
    with tempfile.TemporaryDirectory(prefix="headrace-merge-") as folder:
        sources = [storage.local(f"{path}/{unquote(name)}", Path(folder)) for name in piece.files]
        added = written(spark, path, piece.day, ranged, lambda output: merge_files(sources, output, form), change=False)
    with begun(spark, path) as transaction:
        if not there():  # only now: Delta refuses the commit if a file is removed after the start of the transaction
            return 0
        now = round(time.time() * 1000)
        removed = actions_of(spark, (_entry(name, piece.day, size, now) for name, size in piece.files.items()))
        actions = [*actions_of(spark, [added]), *(file.removeWithTimestamp(now, False) for file in removed)]
        transaction.trackFilesRead(scala_list(spark, removed))
        nothing, none = scala_list(spark, []), java_class(spark, "scala.Option").empty()
        operation = java_class(spark, f"{DELTA}.DeltaOperations$Optimize")(nothing, nothing, False, none, False)
        transaction.commit(scala_list(spark, actions), operation)
    return int(added["add"]["size"])


def _entry(name: str, day: str, size: int, now: int) -> Mapping[str, Any]:
    """Returns the action that adds a file, as Delta removes it by."""
    about = {"path": name, "partitionValues": {DAY: day} if day else {}, "size": size}
    return {"add": {**about, "modificationTime": now, "dataChange": False}}
