"""Many small files become one, a piece at a time: what to merge next, and merging it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from pyspark.sql import SparkSession

from headrace_lake.inventory import Inventory, Part
from headrace_lake.tables import DAY

_MOST_FILES: Final = 500  # in a piece: opening one costs milliseconds
_SLOW: Final = 1.0  # a piece that took longer than aimed at, as a share of it, was too large
_QUICK: Final = 0.4  # one that took less was too small
_LEAST_BYTES: Final = 4 << 20

ZSTD_LEVEL: Final = "parquet.compression.codec.zstd.level"
"""Hadoop's name for how hard Parquet compresses, 1 to 22."""

_MERGED_LEVEL: Final = 3  # of merged files at least: they stay, and are written once; those of a batch soon go


class Piece(NamedTuple):
    """What one OPTIMIZE merges: the `files` of `day` in `table` that are smaller than `below` bytes, `size` in all."""

    table: str
    day: str
    files: int
    size: int
    below: int


class Size:
    """How many bytes a piece may have so that it takes `seconds`: learned from those before."""

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


def choose(tables: Mapping[str, Inventory], *, today: str, least: int, most: int) -> Piece | None:
    """The piece to merge next, of at most about `most` bytes; None when nothing is worth it.

    A day that may still grow, and a table without days, has to have `least` small files. A day that is over is merged
    until nothing is left to merge. Where there are most files to be had, there it begins; the smallest go first, so that
    no byte is written again more often than it must.
    """
    pieces = [
        piece
        for table, inventory in tables.items()
        for day, part in inventory.parts.items()
        if (piece := _piece(table, day, part, least if day in ("", today) else 2, most)) is not None
    ]
    return max(pieces, key=lambda piece: piece.files, default=None)


def _piece(table: str, day: str, part: Part, least: int, most: int) -> Piece | None:
    sizes = sorted(part.small.values())
    if len(sizes) < max(2, least):
        return None
    count = 2  # however large: else what is between small and the target would never be merged
    size = sum(sizes[:2])
    while count < len(sizes) and (
        (count < _MOST_FILES and size + sizes[count] <= most) or sizes[count] == sizes[count - 1]
    ):
        size += sizes[count]
        count += 1
    return Piece(table, day, count, size, sizes[count - 1] + 1)


def merge(spark: SparkSession, path: str, piece: Piece) -> None:
    """Merges the files of `piece` in the table at `path`. Readers see the same rows before and after. Blocks."""
    level = int(cast("Any", spark)._jsc.hadoopConfiguration().get(ZSTD_LEVEL, str(_MERGED_LEVEL)))
    # of this session only: batches are written in the query's own
    spark.conf.set(ZSTD_LEVEL, str(max(level, _MERGED_LEVEL)))
    spark.conf.set("spark.databricks.delta.optimize.minFileSize", str(piece.below))
    spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(max(piece.size, piece.below) + 1))
    where = f" WHERE {DAY} = '{piece.day}'" if piece.day else ""
    spark.sql(f"OPTIMIZE delta.`{path}`{where}")
