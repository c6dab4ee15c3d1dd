"""Many counts in few sums: none spills into its neighbour, whatever the size of a batch."""

from __future__ import annotations

import pytest
from headrace_lake.tally import Tally
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

CONDITIONS = {"all": "true", "odd": "n % 2 = 1", "none": "false", "unknown": "null = n", "first": "n = 0"}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("rows", "sums"),
    [(0, 2), (5, 2), ((1 << 21) - 1, 2), (1 << 21, 3), ((1 << 31) - 1, 3), (1 << 31, 5), ((1 << 63) - 1, 5)],
)
def test_as_many_counts_share_a_sum_as_have_room(spark: SparkSession, rows: int, sums: int) -> None:
    assert len(spark.range(1).selectExpr("id as n").agg(*Tally(CONDITIONS, rows).columns()).columns) == sums


@pytest.mark.spark
def test_counts_are_those_of_their_conditions(spark: SparkSession) -> None:
    tally = Tally(CONDITIONS, 7)
    row = spark.range(7).selectExpr("id as n").agg(*tally.columns(), sf.max("n").alias("other")).first()
    assert row is not None
    assert tally.counts(row.asDict()) == {"all": 7, "odd": 3, "none": 0, "unknown": 0, "first": 1}


@pytest.mark.spark
def test_no_rows_are_counts_of_nothing(spark: SparkSession) -> None:
    tally = Tally(CONDITIONS, 7)
    row = spark.range(0).selectExpr("id as n").agg(*tally.columns()).first()
    assert row is not None
    assert tally.counts(row.asDict()) == dict.fromkeys(CONDITIONS, 0)


@pytest.mark.parametrize("rows", [1, (1 << 21) - 1, 1 << 21, (1 << 31) - 1, 1 << 31, (1 << 63) - 1])
def test_a_full_count_leaves_its_neighbours_alone(rows: int) -> None:
    tally = Tally({"a": "", "b": "", "c": "", "d": ""}, rows)
    width = max(21, rows.bit_length())
    together = 63 // width
    full = sum(rows << (width * place) for place in range(together))
    assert full < 1 << 63
    sums = -(-4 // together)
    last = sum(rows << (width * place) for place in range(4 - together * (sums - 1)))
    seen = {f"tally{number}": full if number < sums - 1 else last for number in range(sums)}
    assert tally.counts(seen) == dict.fromkeys("abcd", rows)
