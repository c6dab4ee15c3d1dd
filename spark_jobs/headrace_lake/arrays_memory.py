"""The way `arrays`: the memory is `RecentArrays`, in the driver. Each batch is read twice: for its ids, and to be written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace_lake import lookup
from headrace_lake.causes import chain
from headrace_lake.decode import FAULT, is_id
from headrace_lake.memory import DUPLICATE, ELSEWHERE, OFFSET_BITS, Glance, Kind, State, Write
from headrace_lake.recent import RecentArrays, Rows

_SLICE: Final = 1_000_000
"""Ids that are brought to the driver at once when the memory is rebuilt."""

_MINUTE: Final = 60_000

_FAULTY: Final = "headrace: this batch holds a faulty record"
"""What the writing query fails with when the ids were taken at a glance."""

AT_A_GLANCE: Final = f"not coalesce({is_id('event_id')}, false)"
"""As SQL: a row of a glance has no id. (Whether it is an event is not known.)"""


class ArraysMemory:
    """As `memory.Memory`."""

    def __init__(self, spark: SparkSession, lake: str, topic_id: str, horizon: int, most: int) -> None:
        """`horizon` in ms, `most` in bytes."""
        self._spark = spark
        self._lake = lake
        self._topic_id = topic_id
        self._horizon = horizon
        self._ids = RecentArrays(horizon, most)

    def rebuild(self, since: int) -> None:
        """As `Memory`: in slices of time, the newest first."""
        landed = lookup.landed(self._spark, self._lake, since, self._topic_id)
        for first, end in _slices(landed):
            self._ids.remember(_rows(landed.where(f"time >= {first}L and time < {end}L"), Kind.LANDED))

    def expire(self, keep_from: int) -> None:
        """As `Memory`."""
        self._ids.expire(keep_from)

    def judged(self, decoded: DataFrame, glance: Glance | None, write: Write) -> dict[str, Any]:
        """As `Memory`. With a `glance` the ids are taken from it, faulty or not, and the writing query fails, before anything
        of it is committed, when it meets a fault; then all is done again without. So records are judged once, not twice.
        """
        seen = self._rows_of(glance(), AT_A_GLANCE) if glance is not None else None
        if seen is not None and not _republished(seen):
            guarded = decoded.withColumn(FAULT, sf.expr(f"if({FAULT} is null, {FAULT}, raise_error('{_FAULTY}'))"))
            try:
                written = write(_told(guarded, self._duplicates(seen)))
            except (Py4JJavaError, PySparkException) as error:
                if not any(_FAULTY in cause for cause in chain(error)):
                    raise
                written = {}
            if written:
                return written
        rows = self._rows_of(decoded)
        if seen is not None:
            self._ids.forget(seen.place[~np.isin(seen.place, rows.place)])
        duplicates = self._resolved(decoded) if _republished(rows) else []
        return write(_told(decoded, duplicates + self._duplicates(rows)))

    def state(self) -> State:
        """As `Memory`."""
        return self._ids.state()

    def close(self) -> None:
        """As `Memory`."""
        self._ids = RecentArrays(0, 0)

    def _rows_of(self, frame: DataFrame, no_event: str = lookup.NO_EVENT) -> Rows:
        """What is asked of a batch."""
        kind = lookup.kind(uniques=self._ids.uniques > 0, no_event=no_event)
        return _rows(
            frame.selectExpr("event_id", f"{lookup.TIME} as time", f"{lookup.place()} as place", f"{kind} as kind")
        )

    def _duplicates(self, rows: Rows) -> list[int]:
        """The places of those that are, without their sign; the others are remembered."""
        found: list[int] = (rows.place[self._ids.judge(rows)] & ELSEWHERE).tolist()
        return found

    def _resolved(self, decoded: DataFrame) -> list[int]:
        """Remembers all that the table and the batch have of the `u.` ids that come republished; which are duplicates."""
        there, here = lookup.of_republished(self._spark, self._lake, decoded, self._horizon, self._topic_id)
        self._ids.remember(_rows(there, Kind.LANDED))
        return self._duplicates(_rows(here, Kind.REPUBLISHED))


def _republished(rows: Rows) -> bool:
    """Whether `u.` ids come republished."""
    return bool(((rows.place < 0) & (rows.kind == Kind.REPUBLISHED)).any())


def _told(decoded: DataFrame, places: list[int]) -> DataFrame:
    """`decoded` with `DUPLICATE`: whether the place of a row is among `places`, of which none is negative; in any order.

    One string of bytes says it: for each partition a byte for each offset from the first to the last that is named, so no
    more than the batch has offsets. The query has the same generated code for every batch, since constants that are no plain
    numbers are handed to it. (A join would be two more Spark jobs.)
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
    """Spans of time, in ms, the newest first, of about `_SLICE` rows each."""
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


def _rows(frame: DataFrame, kind: Kind | None = None) -> Rows:
    """The rows (event_id, time, place and, unless it is given, kind) whose id is one of ours, by Arrow."""
    kinds = "kind" if kind is None else str(int(kind))
    digits = frame.selectExpr("substring(event_id, 3) as digits", "time", "place", f"tinyint({kinds}) as kind")
    # `row` keeps Spark from moving the filter below, where all that decides on a fault would be computed a second time.
    table = (
        digits.selectExpr(
            "unhex(digits) as id", "time", "place", "kind", "digits = lower(digits) as ours",
            "monotonically_increasing_id() as row",
        )
        .where("row >= 0 and kind is not null and id is not null and ours").drop("ours", "row").toArrow()
    )  # fmt: skip
    if not table.num_rows:
        words, longs = np.empty(0, np.uint64), np.empty(0, np.int64)
        return Rows(words, words, longs, longs, np.empty(0, np.int8))
    ids = pa.concat_arrays(table["id"].cast(pa.binary(16)).chunks)
    words = np.frombuffer(ids.buffers()[1], ">u8", 2 * len(ids), 16 * ids.offset).astype(np.uint64)
    time, place, what = (table[name].to_numpy() for name in ("time", "place", "kind"))
    return Rows(words[0::2].copy(), words[1::2].copy(), time, place, what)
