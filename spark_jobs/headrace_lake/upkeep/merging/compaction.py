"""Compaction: merges the files of a piece into one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from pyspark.sql import SparkSession

from headrace_lake.spark.engine import UNLIKE, ZSTD_LEVEL
from headrace_lake.tables.append import stepwise
from headrace_lake.tables.layout import DAY, DUPLICATES, QUARANTINE, STATISTICS
from headrace_lake.upkeep.inventory import Inventory
from headrace_lake.upkeep.merging.choice import Piece
from headrace_lake.upkeep.merging.parquet_merge import Form
from headrace_lake.upkeep.merging.rewrite import Files, by_arrow

_MERGED_LEVEL: Final = 3  # at least, for merged files: they stay, while a batch's files are soon replaced

_ROW_GROUP: Final = 4 << 20
"""Bytes of a row group in merged files, compressed: a reader skips a row group whose ranges do not meet its filter."""

_BLOCK_SIZE: Final = "parquet.block.size"
_BY_EVENT_TIME: Final = ("stream", "event_time")
_SORTED_BY: Final = {QUARANTINE: ("stream", "received_time"), DUPLICATES: ("partition", "offset")}
"""The order of rows in merged files of a table with days, if it is another."""


def merge(
    spark: SparkSession, path: str, piece: Piece, table: Inventory, going_on: Callable[[], bool] = lambda: True
) -> int:
    """Merges the files of `piece` in `table`, which is at `path`. Readers see the same rows before and after. Blocks.

    Returns the bytes of the new file. Nothing happens, and 0 is returned, if the table lacks one of the files by now. Raises
    `InterruptedMergeError` once `going_on` says no.
    """
    given = cast("Any", spark)._jsc.hadoopConfiguration()
    level = max(int(given.get(ZSTD_LEVEL, "0")), _MERGED_LEVEL)
    row_group = int(given.get(_BLOCK_SIZE, str(_ROW_GROUP)))
    files = Files(path, piece.day, dict.fromkeys(piece.files, 0) | table.sizes(piece.day, piece.files))
    by = _SORTED_BY.get(piece.table, _BY_EVENT_TIME) if piece.day else ()

    def there() -> bool:
        table.latest()
        return len(table.sizes(piece.day, piece.files)) == len(piece.files)

    if not there():
        return 0
    written = None
    if stepwise(spark):
        form = Form(by, level, row_group, plain=UNLIKE)
        ranged = [name.strip(" `") for name in table.properties.get(STATISTICS, "").split(",")]
        written = by_arrow(spark, files, form, ranged, there=there, going_on=going_on)
    if written is None:
        _optimize(spark, path, piece)
        return piece.size
    return written


def _optimize(spark: SparkSession, path: str, piece: Piece) -> None:
    """Leaves the choice to Delta, unsorted: all smaller files of the day."""
    spark.conf.set("spark.databricks.delta.optimize.minFileSize", str(piece.size + 1))
    spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(piece.size + 1))
    where = f" WHERE {DAY} = '{piece.day}'" if piece.day else ""
    spark.sql(f"OPTIMIZE delta.`{path}`{where}")
