"""The way `arrays`: the memory is `RecentArrays`, in the driver. Each batch is read twice: for its ids, and to be written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace_lake import lookup
from headrace_lake.memory import DUPLICATE, ELSEWHERE, Kind, State, Write
from headrace_lake.recent import RecentArrays, Rows

_FEW: Final = 1000
"""Duplicates of a batch that are named in the query; more are joined with it."""

_PADDING: Final = 16

_SLICE: Final = 1_000_000
"""Ids that are brought to the driver at once when the memory is rebuilt."""

_MINUTE: Final = 60_000


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

    def judged(self, decoded: DataFrame, write: Write) -> dict[str, Any]:
        """As `Memory`."""
        kind = lookup.kind(uniques=self._ids.uniques > 0)
        asked = decoded.selectExpr(
            "event_id", f"{lookup.TIME} as time", f"{lookup.place()} as place", f"{kind} as kind"
        )
        rows = _rows(asked.where("kind is not null"))
        places: list[int] = []
        if ((rows.place < 0) & (rows.kind == Kind.REPUBLISHED)).any():
            there, here = lookup.of_republished(self._spark, self._lake, decoded, self._horizon, self._topic_id)
            self._ids.remember(_rows(there, Kind.LANDED))
            copies = _rows(here, Kind.REPUBLISHED)
            places += copies.place[self._ids.judge(copies)].tolist()
        places += rows.place[self._ids.judge(rows)].tolist()
        return write(self._without(decoded, sorted({place & ELSEWHERE for place in places})))

    def state(self) -> State:
        """As `Memory`."""
        return self._ids.state()

    def close(self) -> None:
        """As `Memory`."""
        self._ids = RecentArrays(0, 0)

    def _without(self, decoded: DataFrame, places: list[int]) -> DataFrame:
        if len(places) <= _FEW:
            # A short list would stand in the generated code, which would be compiled anew for each batch; a longer one is
            # handed to it. There are no negative places.
            listed = ", ".join(f"{place}L" for place in [*places, *range(-_PADDING, 0)])
            return decoded.withColumn(DUPLICATE, sf.expr(f"({lookup.PLACE}) in ({listed})"))
        told = sf.broadcast(self._spark.createDataFrame(pa.table({"told": pa.array(places, pa.int64())})))
        joined = decoded.join(told, sf.expr(lookup.PLACE) == sf.col("told"), "left")
        return joined.withColumn(DUPLICATE, sf.col("told").isNotNull()).drop("told")


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
    table = (
        digits.selectExpr("unhex(digits) as id", "time", "place", "kind", "digits = lower(digits) as ours")
        .where("id is not null and ours").drop("ours").toArrow()
    )  # fmt: skip
    if not table.num_rows:
        words, longs = np.empty(0, np.uint64), np.empty(0, np.int64)
        return Rows(words, words, longs, longs, np.empty(0, np.int8))
    ids = pa.concat_arrays(table["id"].cast(pa.binary(16)).chunks)
    words = np.frombuffer(ids.buffers()[1], ">u8", 2 * len(ids), 16 * ids.offset).astype(np.uint64)
    time, place, what = (table[name].to_numpy() for name in ("time", "place", "kind"))
    return Rows(words[0::2].copy(), words[1::2].copy(), time, place, what)
