"""The index `arrays`: `IdArrays` in the driver. Each batch is read twice: first its ids, then to write it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from typing_extensions import override

from headrace_lake.dedup import lookup
from headrace_lake.dedup.id_arrays import IdArrays, IdRows
from headrace_lake.dedup.index import (
    DUPLICATE,
    ELSEWHERE,
    OFFSET_BITS,
    DedupIndex,
    IdKind,
    IdProjection,
    IndexState,
    WriteRows,
)
from headrace_lake.rows.decode import FAULT, is_id
from headrace_lake.spark.causes import chain

_SLICE: Final = 1_000_000
"""How many ids a rebuild brings to the driver at once, about."""

_MINUTE: Final = 60_000

_FAULTY: Final = "headrace: this batch holds a faulty record"
"""The writing query fails with this if the ids came from an id projection and a record turns out to be faulty."""

NO_ID: Final = f"not coalesce({is_id('event_id')}, false)"
"""SQL: a row of an id projection has no valid id. (Whether it is an event is not known.)"""


class ArraysIndex(DedupIndex):
    """Checks the ids of a batch in the driver before the batch is written."""

    def __init__(self, spark: SparkSession, lake: str, topic_id: str, horizon: int, most: int) -> None:
        """`horizon` in ms, `most` in bytes."""
        self._spark = spark
        self._lake = lake
        self._topic_id = topic_id
        self._horizon = horizon
        self._ids = IdArrays(horizon, most)

    @override
    def add_landed(self, since: int, inside: str = "true") -> None:
        """Reads the table in slices of time, newest first."""
        landed = lookup.landed(self._spark, self._lake, since, self._topic_id, inside)
        for first, end in _slices(landed):
            self._ids.add(_rows(landed.where(f"time >= {first}L and time < {end}L"), IdKind.LANDED))

    @override
    def expire(self, keep_from: int) -> None:
        self._ids.expire(keep_from)

    @override
    def deduplicate(self, decoded: DataFrame, id_projection: IdProjection | None, write: WriteRows) -> dict[str, Any]:
        """Deduplicates a batch. With an `id_projection`, takes all ids from it, also those of faulty records: so faults are
        checked once, not twice.

        If the writing query then meets a fault, it fails before it commits anything, and the batch is done again without
        the projection.
        """
        seen = self._rows_of(id_projection(), NO_ID) if id_projection is not None else None
        if seen is not None and not _republished(seen):
            guarded = decoded.withColumn(FAULT, sf.expr(f"if({FAULT} is null, {FAULT}, raise_error('{_FAULTY}'))"))
            try:
                written = write(_marked(guarded, self._duplicates(seen)))
            except (Py4JJavaError, PySparkException) as error:
                if not any(_FAULTY in cause for cause in chain(error)):
                    raise
                written = {}
            if written:
                return written
        rows = self._rows_of(decoded)
        if seen is not None:
            self._ids.remove(seen.place[~np.isin(seen.place, rows.place)])
        duplicates = self._resolved(decoded) if _republished(rows) else []
        return write(_marked(decoded, duplicates + self._duplicates(rows)))

    @override
    def state(self) -> IndexState:
        return self._ids.state()

    @override
    def close(self) -> None:
        self._ids = IdArrays(0, 0)

    def _rows_of(self, frame: DataFrame, no_event: str = lookup.NO_EVENT) -> IdRows:
        """Returns the events of `frame` in the form that `IdArrays` takes."""
        kind = lookup.kind(uniques=self._ids.uniques > 0, no_event=no_event)
        return _rows(
            frame.selectExpr("event_id", f"{lookup.TIME} as time", f"{lookup.place()} as place", f"{kind} as kind")
        )

    def _duplicates(self, rows: IdRows) -> list[int]:
        """Returns the places of the duplicates among `rows`, without the sign bit. Adds the other rows to the index."""
        found: list[int] = (rows.place[self._ids.check_and_add(rows)] & ELSEWHERE).tolist()
        return found

    def _resolved(self, decoded: DataFrame) -> list[int]:
        """Adds all events, in the table and in the batch, with the batch's republished `u.` ids; the places of duplicates."""
        there, here = lookup.of_republished(self._spark, self._lake, decoded, self._horizon, self._topic_id)
        self._ids.add(_rows(there, IdKind.LANDED))
        return self._duplicates(_rows(here, IdKind.REPUBLISHED))


def _republished(rows: IdRows) -> bool:
    """Returns whether any event with a `u.` id is republished."""
    return bool(((rows.place < 0) & (rows.kind == IdKind.REPUBLISHED)).any())


def _marked(decoded: DataFrame, places: list[int]) -> DataFrame:
    """Returns `decoded` with `DUPLICATE`: whether the row's place is among `places`, which are not negative and in any order.

    The query looks this up in a byte string: for each partition, one byte per offset from its first to its last duplicate,
    so at most one per offset of the batch. Spark passes constants that are not plain numbers to the generated code, so all
    batches share the same code. (A join would cost two more Spark jobs.)
    """
    offsets: dict[int, list[int]] = {}
    for place in sorted(places):
        offsets.setdefault(place >> OFFSET_BITS, []).append(place & ((1 << OFFSET_BITS) - 1))
    flags = bytearray()
    first, last, at = ([-1] * (max(offsets, default=0) + 1) for _ in range(3))
    for number, named in offsets.items():
        first[number], last[number], at[number] = min(named), max(named), len(flags)
        span = np.zeros(last[number] - first[number] + 1, np.uint8)
        span[np.array(named) - first[number]] = 1
        flags += span.tobytes()

    def of_partition(values: list[int]) -> Column:
        return sf.expr(f"get(array({', '.join(f'{value}L' for value in values)}), partition)")

    index = sf.col("offset") - of_partition(first) + of_partition(at) + 1
    flag = sf.substr(sf.lit(flags), index.cast("int"), sf.lit(1))
    inside = sf.col("offset").between(of_partition(first), of_partition(last))
    return decoded.withColumn(DUPLICATE, sf.coalesce(inside & (flag == sf.lit(bytearray(b"\1"))), sf.lit(False)))


def _slices(landed: DataFrame) -> Iterator[tuple[int, int]]:
    """Yields spans of time in ms, newest first, with about `_SLICE` rows each."""
    minutes = (
        landed.groupBy(sf.expr(f"floor(time / {_MINUTE})").alias("minute")).count().orderBy(sf.desc("minute")).collect()
    )
    held, end = 0, None
    for index, (minute, count) in enumerate(minutes):
        end = minute + 1 if end is None else end
        held += count
        if held >= _SLICE or index == len(minutes) - 1:
            yield minute * _MINUTE, end * _MINUTE
            held, end = 0, None


def _rows(frame: DataFrame, kind: IdKind | None = None) -> IdRows:
    """Collects rows (event_id, time, place, and kind unless given) by Arrow; only those with a valid id."""
    kinds = "kind" if kind is None else str(int(kind))
    digits = frame.selectExpr("substring(event_id, 3) as digits", "time", "place", f"tinyint({kinds}) as kind")
    # `row` keeps Spark from pushing the filter down, where it would check each record for faults a second time.
    table = (
        digits.selectExpr(
            "unhex(digits) as id", "time", "place", "kind", "digits = lower(digits) as ours",
            "monotonically_increasing_id() as row",
        )
        .where("row >= 0 and kind is not null and id is not null and ours").drop("ours", "row").toArrow()
    )  # fmt: skip
    if not table.num_rows:
        words, longs = np.empty(0, np.uint64), np.empty(0, np.int64)
        return IdRows(words, words, longs, longs, np.empty(0, np.int8))
    ids = pa.concat_arrays(table["id"].cast(pa.binary(16)).chunks)
    words = np.frombuffer(ids.buffers()[1], ">u8", 2 * len(ids), 16 * ids.offset).astype(np.uint64)
    time, place, what = (table[name].to_numpy() for name in ("time", "place", "kind"))
    return IdRows(words[0::2].copy(), words[1::2].copy(), time, place, what)
