"""The index `arrays`: `IdArrays` in the driver.

A batch is written as if it had no duplicates. Before the commit, its ids are read from the new files: if there are duplicates
after all, the batch is written again without them. After a batch with duplicates, the next is read twice instead: first its ids,
then to write it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from headrace_common.record.contract import DETERMINISTIC, REPUBLISHED
from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from typing_extensions import override

from headrace_lake.dedup import lookup
from headrace_lake.dedup.id_arrays import IdArrays, IdRows, Longs
from headrace_lake.dedup.index import (
    DUPLICATE,
    ELSEWHERE,
    OFFSET_BITS,
    DedupIndex,
    IdKind,
    IndexState,
    WriteRows,
)
from headrace_lake.spark.storage import Storage

_SLICE: Final = 1_000_000
"""How many ids a rebuild brings to the driver at once, about."""

_MINUTE: Final = 60_000

_READ: Final = ("event_id", "received_time", "attributes", "partition", "offset")
"""The columns of a written file that the index reads."""


_VALID: Final = r"^[du]\.[0-9a-f]{32}$"
"""Ids that the index knows; events with other ids land as often as they come."""


class _DuplicatesError(Exception):
    """Files hold duplicates: rows at these places."""

    def __init__(self, places: list[int]) -> None:
        super().__init__(len(places))
        self.places: Final = places


class ArraysIndex(DedupIndex):
    """Checks the ids of a batch in the driver before the batch is committed."""

    def __init__(self, spark: SparkSession, lake: str, topic_id: str, horizon: int, most: int) -> None:
        """`horizon` in ms, `most` in bytes."""
        self._spark = spark
        self._lake = lake
        self._topic_id = topic_id
        self._horizon = horizon
        self._ids = IdArrays(horizon, most)
        self._again = False  # whether the last batch had duplicates: then the next is likely to have some, too

    @override
    def add_landed(self, since: int) -> None:
        """Reads the table in slices of time, newest first."""
        landed = lookup.landed(self._spark, self._lake, since, self._topic_id)
        for first, end in _slices(landed):
            self._ids.add(_rows(landed.where(f"time >= {first}L and time < {end}L"), IdKind.LANDED))

    @override
    def deduplicate(self, decoded: DataFrame, write: WriteRows) -> dict[str, Any]:
        if self._again:
            places = self._places(self._rows_of(decoded), decoded)
        else:
            try:
                return write(_marked(decoded, []), lambda files: self._accept(files, decoded))
            except _DuplicatesError as error:
                places = error.places
        self._again = bool(places)
        return write(_marked(decoded, places))

    def _accept(self, files: Sequence[str], decoded: DataFrame) -> None:
        """Raises `_DuplicatesError` if the rows of `files` have duplicates, and deletes the files then."""
        storage = Storage(self._spark)
        with tempfile.TemporaryDirectory(prefix="headrace-ids-") as folder:
            read = [pq.ParquetFile(storage.local(file, Path(folder))).read(_READ) for file in files]
        if read and (places := self._places(_written(pa.concat_tables(read), uniques=self._ids.uniques > 0), decoded)):
            with suppress(Py4JJavaError):  # what may not be deleted stays for vacuum
                for file in files:
                    storage.delete(file)
            raise _DuplicatesError(places)

    @override
    def state(self) -> IndexState:
        return self._ids.state()

    @override
    def close(self) -> None:
        self._ids = IdArrays(0, 0)

    def _rows_of(self, frame: DataFrame) -> IdRows:
        """Returns the events of `frame` in the form that `IdArrays` takes."""
        kind = lookup.kind(uniques=self._ids.uniques > 0)
        return _rows(
            frame.selectExpr("event_id", f"{lookup.TIME} as time", f"{lookup.place()} as place", f"{kind} as kind")
        )

    def _places(self, rows: IdRows, decoded: DataFrame) -> list[int]:
        """Returns the places of the duplicates among `rows`, the events of `decoded`, and adds the other rows to the index.

        If any has a republished `u.` id, this adds before all events with such ids, from the table and from the batch.
        """
        duplicates = []
        if _republished(rows):
            there, here = lookup.of_republished(self._spark, self._lake, decoded, self._horizon, self._topic_id)
            self._ids.add(_rows(there, IdKind.LANDED))
            duplicates = self._duplicates(_rows(here, IdKind.REPUBLISHED))
        return duplicates + self._duplicates(rows)

    def _duplicates(self, rows: IdRows) -> list[int]:
        """Returns the places of the duplicates among `rows`, without the sign bit. Adds the other rows to the index."""
        found: list[int] = (rows.place[self._ids.check_and_add(rows)] & ELSEWHERE).tolist()
        return found


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
    time, place, what = (table[name].to_numpy() for name in ("time", "place", "kind"))
    return _columns(b"".join(table["id"].to_pylist()), time, place, what)


def _written(rows: pa.Table, *, uniques: bool) -> IdRows:
    """Returns the events in rows of the events table, as `lookup` would with SQL; `uniques`: also those whose ids are only asked
    for.
    """
    ours = pc.starts_with(rows["event_id"], DETERMINISTIC.decode()).to_numpy()
    again = pc.fill_null(pc.ends_with(rows["attributes"], REPUBLISHED.decode()), False).to_numpy()
    kind = np.where(ours, IdKind.ORDINARY, np.where(again, IdKind.REPUBLISHED, IdKind.UNIQUE)).astype(np.int8)
    place = rows["partition"].to_numpy().astype(np.int64) << OFFSET_BITS | rows["offset"].to_numpy()
    place |= np.where(ours, 0, -1 << 63)
    asked = pc.match_substring_regex(rows["event_id"], _VALID).to_numpy() & (uniques | (kind != IdKind.UNIQUE))
    digits = pc.utf8_slice_codeunits(rows["event_id"].filter(pa.array(asked)), 2)
    time = rows["received_time"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_numpy()
    return _columns(bytes.fromhex("".join(digits.to_pylist())), time[asked], place[asked], kind[asked])


def _columns(ids: bytes, time: Longs, place: Longs, kind: npt.NDArray[np.int8]) -> IdRows:
    """Returns rows of `ids`, 16 bytes each."""
    words = np.frombuffer(ids, ">u8").astype(np.uint64)
    return IdRows(words[0::2].copy(), words[1::2].copy(), time, place, kind)
