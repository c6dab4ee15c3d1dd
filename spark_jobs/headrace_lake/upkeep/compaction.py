"""Compaction: chooses which small files to merge next, and merges them, sorted, one piece at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from pyspark.sql import SparkSession

from headrace_lake.spark.engine import ZSTD_LEVEL
from headrace_lake.spark.literals import quoted
from headrace_lake.tables.append import stepwise
from headrace_lake.tables.layout import DAY, QUARANTINE
from headrace_lake.tables.rewrite import merge_sorted
from headrace_lake.upkeep.inventory import DayFiles, Inventory

_MOST_FILES: Final = 500  # in a piece: opening a file costs milliseconds
_SLOW: Final = 1.0  # a piece that took more than this share of the aimed time was too large
_QUICK: Final = 0.4  # a piece that took less was too small
_LEAST_BYTES: Final = 4 << 20

_MERGED_LEVEL: Final = 3  # at least, for merged files: they stay, while a batch's files are soon replaced

_ROW_GROUP: Final = 4 << 20
"""Bytes of a row group in merged files, compressed: a reader skips a row group whose ranges do not meet its filter."""

_BLOCK_SIZE: Final = "parquet.block.size"
_BY_EVENT_TIME: Final = ("stream", "event_time")
_SORTED_BY: Final = {QUARANTINE: ("stream", "received_time")}
"""The order of rows in merged files of a table with days, if it is another. The partition's column comes first."""


class CompactionPiece(NamedTuple):
    """What one OPTIMIZE merges: the `files` of `day` in `table` that are smaller than `below` bytes, `size` in all."""

    table: str
    day: str
    files: int
    size: int
    below: int


class PieceSize:
    """The size in bytes of a piece that takes about `seconds`; learned from earlier pieces."""

    def __init__(self, seconds: float, most: int) -> None:
        self._seconds: Final = seconds
        self._most: Final = max(most, _LEAST_BYTES)
        self.bytes = min(16 << 20, self._most)

    def learn(self, size: int, seconds: float) -> None:
        """A piece of `size` bytes took `seconds`."""
        if seconds > self._seconds * _SLOW:
            self.bytes = max(_LEAST_BYTES, min(self.bytes, size) // 2)
        elif seconds < self._seconds * _QUICK and size > self.bytes // 2:
            self.bytes = min(self._most, self.bytes * 2)


def choose(tables: Mapping[str, Inventory], *, today: str, least: int, most: int) -> CompactionPiece | None:
    """The piece to merge next, of at most about `most` bytes; None if nothing is worth merging.

    Today, and a table without days, must have `least` small files. An earlier day is merged until nothing is left to
    merge. The piece with the most files comes first. Within a day the smallest files come first, so that each byte is
    rewritten as rarely as possible.
    """
    pieces = [
        piece
        for table, inventory in tables.items()
        for day, day_files in inventory.days.items()
        if (piece := _piece(table, day, day_files, least if day in ("", today) else 2, most)) is not None
    ]
    return max(pieces, key=lambda piece: piece.files, default=None)


def _piece(table: str, day: str, day_files: DayFiles, least: int, most: int) -> CompactionPiece | None:
    sizes = sorted(day_files.small.values())
    if len(sizes) < max(2, least):
        return None
    count = 2  # of any size: otherwise files just below the limit of small would never be merged
    size = sum(sizes[:2])
    while count < len(sizes) and (
        (count < _MOST_FILES and size + sizes[count] <= most) or sizes[count] == sizes[count - 1]
    ):
        size += sizes[count]
        count += 1
    return CompactionPiece(table, day, count, size, sizes[count - 1] + 1)


def merge(spark: SparkSession, path: str, piece: CompactionPiece) -> None:
    """Merges the files of `piece` in the table at `path`. Readers see the same rows before and after. Blocks."""
    given = cast("Any", spark)._jsc.hadoopConfiguration()
    level = int(given.get(ZSTD_LEVEL, str(_MERGED_LEVEL)))
    # for this session only: the query writes batches in its own session
    spark.conf.set(ZSTD_LEVEL, str(max(level, _MERGED_LEVEL)))
    if piece.day and stepwise(spark):
        spark.conf.set(_BLOCK_SIZE, given.get(_BLOCK_SIZE, str(_ROW_GROUP)))
        chosen = f"partitionValues.{DAY} = {quoted(piece.day)} and size < {piece.below}"
        merge_sorted(spark, path, chosen, (DAY, *_SORTED_BY.get(piece.table, _BY_EVENT_TIME)))
        return
    spark.conf.set("spark.databricks.delta.optimize.minFileSize", str(piece.below))
    spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(max(piece.size, piece.below) + 1))
    where = f" WHERE {DAY} = '{piece.day}'" if piece.day else ""
    spark.sql(f"OPTIMIZE delta.`{path}`{where}")
