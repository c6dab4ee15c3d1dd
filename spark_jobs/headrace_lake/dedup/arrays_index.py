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
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from typing_extensions import override

from headrace_lake.dedup.id_arrays import IdArrays, IdRows
from headrace_lake.dedup.index import (
    ASKED,
    DUPLICATE,
    OFFSET_BITS,
    PLACE,
    TIME,
    DedupIndex,
    IndexState,
    WriteRows,
    landed,
)
from headrace_lake.rows.decode import FAULT
from headrace_lake.spark.literals import OURS
from headrace_lake.spark.storage import Storage

_PLACE: Final = f"{OURS}place"
_SLICE: Final = 1_000_000
"""How many ids a rebuild brings to the driver at once, about."""

_MINUTE: Final = 60_000

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
        self._ids = IdArrays(horizon, most)
        self._again = False  # whether the last batch had duplicates: then the next is likely to have some, too

    @override
    def add_landed(self, since: int) -> None:
        """Reads the table in slices of time, newest first."""
        rows = landed(self._spark, self._lake, since, self._topic_id)
        for first, end in _slices(rows):
            self._places(rows.where(f"{TIME} >= {first}L and {TIME} < {end}L").toArrow())

    @override
    def deduplicate(self, decoded: DataFrame, write: WriteRows) -> dict[str, Any]:
        if self._again:
            rows = decoded.select(*ASKED, FAULT).toArrow()
            places = self._places(rows.filter(pc.is_null(rows[FAULT])))
        else:
            try:
                return write(_marked(decoded, []), self._accept)
            except _DuplicatesError as error:
                places = error.places
        self._again = bool(places)
        return write(_marked(decoded, places))

    def _accept(self, files: Sequence[str]) -> None:
        """Raises `_DuplicatesError` if the rows of `files` have duplicates, and deletes the files then."""
        storage = Storage(self._spark)
        with tempfile.TemporaryDirectory(prefix="headrace-ids-") as folder:
            read = [pq.ParquetFile(storage.local(file, Path(folder))).read([*ASKED]) for file in files]
        if read and (places := self._places(pa.concat_tables(read))):
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

    def _places(self, events: pa.Table) -> list[int]:
        """Returns the places of the duplicates among `events` (`ASKED`), and adds the others to the index."""
        rows = id_rows(events)
        found: list[int] = rows.place[self._ids.check_and_add(rows)].tolist()
        return found


def _marked(decoded: DataFrame, places: list[int]) -> DataFrame:
    """Returns `decoded` with `DUPLICATE`: whether the row's place is among `places`."""
    if not places:
        return decoded.withColumn(DUPLICATE, sf.lit(False))
    named = decoded.sparkSession.createDataFrame(pa.table({_PLACE: places})).withColumn(DUPLICATE, sf.lit(True))
    marked = decoded.withColumn(_PLACE, sf.expr(PLACE)).join(sf.broadcast(named), _PLACE, "left").drop(_PLACE)
    return marked.withColumn(DUPLICATE, sf.coalesce(DUPLICATE, sf.lit(False)))


def _slices(rows: DataFrame) -> Iterator[tuple[int, int]]:
    """Yields spans of time in ms, newest first, with about `_SLICE` rows each."""
    minutes = (
        rows.groupBy(sf.expr(f"floor({TIME} / {_MINUTE})").alias("minute")).count().orderBy(sf.desc("minute")).collect()
    )
    held, end = 0, None
    for index, (minute, count) in enumerate(minutes):
        end = minute + 1 if end is None else end
        held += count
        if held >= _SLICE or index == len(minutes) - 1:
            yield minute * _MINUTE, end * _MINUTE
            held, end = 0, None


def id_rows(events: pa.Table) -> IdRows:
    """Returns `events` (`ASKED`) as `IdArrays` takes them; only those with a valid id."""
    events = events.filter(pc.match_substring_regex(events["event_id"], _VALID))
    digits = "".join(pc.utf8_slice_codeunits(events["event_id"], 2).to_pylist())
    words = np.frombuffer(bytes.fromhex(digits), ">u8").astype(np.uint64)
    time = events["received_time"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_numpy()
    place = events["partition"].to_numpy().astype(np.int64) << OFFSET_BITS | events["offset"].to_numpy()
    return IdRows(words[0::2].copy(), words[1::2].copy(), time, place)
