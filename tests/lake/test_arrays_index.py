"""How the writing query marks duplicates when the index is in the driver."""

from __future__ import annotations

import random

import pytest
from headrace_lake.dedup.arrays_index import NO_ID, ArraysIndex, _marked
from headrace_lake.dedup.index import DUPLICATE, OFFSET_BITS
from headrace_lake.rows import decode
from pyspark.sql import SparkSession

from tests.lake.records import TOPICS, Headers, Record, changed, frame

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
def test_rows_are_marked_by_their_places(spark: SparkSession, named: list[tuple[int, int]]) -> None:
    rows = [(partition, offset) for partition in range(5) for offset in (*range(10), FAR - 3, FAR - 2, FAR - 1, FAR)]
    frame = spark.createDataFrame(rows, "partition int, offset long")
    marked = _marked(frame, sorted(place(*where) for where in named)).collect()
    assert {row[DUPLICATE] for row in marked} <= {True, False}, "never unknown"
    assert sorted((row["partition"], row["offset"]) for row in marked if row[DUPLICATE]) == sorted(named)


def republished(headers: Headers) -> Headers:
    return [*headers[:-1], ("ce_attributes", b'{"republished":true}')]


def test_nothing_that_an_id_projection_can_see_as_an_id_throws(spark: SparkSession) -> None:
    """The index is not asked about invalid ids."""
    ids: list[bytes | None] = [
        None, b"", b"d.", b"d." + b"0" * 31, b"d." + b"0" * 33, b"d." + b"0" * 30 + "é".encode(), b"d." + b"0" * 31 + b"\xff",
        b"\xff\xfe" + b"0" * 32, b"d." + b"A" * 32, b"x." + b"0" * 32, b"d." + b"0" * 64,
        "€".encode() + b"0" * 31, "éx".encode() + b"0" * 31, "é".encode() + b"0" * 32,
    ]  # fmt: skip
    ours = b"d." + b"0123456789abcdef" * 2
    records = [Record(republished(changed("ce_id", value))) for value in (*ids, ours)]
    index = ArraysIndex(spark, "", "id-of-e", 1000, 1 << 20)
    rows = index._rows_of(decode.id_projection(frame(spark, records), TOPICS), NO_ID)
    assert (rows.place & FAR).tolist() == [100 + len(ids)]
    assert rows.high.tolist() == rows.low.tolist() == [0x0123456789ABCDEF]
