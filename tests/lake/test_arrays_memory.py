"""How the writing query learns which rows are duplicates when the memory is in the driver."""

from __future__ import annotations

import random

import pytest
from headrace_lake.arrays_memory import _told
from headrace_lake.memory import DUPLICATE, OFFSET_BITS
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FAR = (1 << OFFSET_BITS) - 1  # the last offset that a place can hold


def place(partition: int, offset: int) -> int:
    return partition << OFFSET_BITS | offset


@pytest.mark.parametrize(
    "named",
    [
        [],
        [(0, 0)],
        [(0, 5), (0, 7), (2, 6), (2, 7)],
        [(3, 0), (3, 9)],
        [(1, FAR), (1, FAR - 3), (0, 9)],
        random.Random(5).sample([(partition, offset) for partition in range(4) for offset in range(10)], 17),
    ],
)
def test_rows_are_told_by_their_places(spark: SparkSession, named: list[tuple[int, int]]) -> None:
    rows = [(partition, offset) for partition in range(5) for offset in (*range(10), FAR - 3, FAR - 2, FAR - 1, FAR)]
    frame = spark.createDataFrame(rows, "partition int, offset long")
    told = _told(frame, sorted(place(*where) for where in named)).where(DUPLICATE).select("partition", "offset")
    assert sorted(map(tuple, told.collect())) == sorted(named)


def test_a_row_is_told_or_not_and_never_unknown(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(0, 1), (9, 1)], "partition int, offset long")
    for places in ([], [place(0, 1)], [place(4, 1)]):
        assert {row[DUPLICATE] for row in _told(frame, places).collect()} <= {True, False}
