"""Rows are counted exactly by their key, whatever the number of keys, of rows and of tasks."""

from __future__ import annotations

from collections import Counter

import pytest
from headrace_lake.rows.keyed_counts import counts, keyed_counts
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as sf


@pytest.mark.spark
@pytest.mark.parametrize(("keys", "tasks"), [(1, 1), (7, 3), (600, 5), (5_000, 2)])
def test_counts_are_exact(spark: SparkSession, keys: int, tasks: int) -> None:
    """Each task meets every key; some rows have none."""
    rows = 6 * keys + 1
    key = f"if(id % 5 = 0, null, id * 7919 % {keys})"
    observation = Observation()
    frame = spark.range(0, rows, 1, tasks).observe(observation, keyed_counts(sf.expr(key)).alias("found"))
    frame.write.format("noop").mode("append").save()
    assert counts(observation.get["found"]) == Counter(number * 7919 % keys for number in range(rows) if number % 5)


@pytest.mark.spark
def test_large_keys_and_no_rows(spark: SparkSession) -> None:
    row = spark.range(3).agg(keyed_counts(sf.lit((1 << 53) - 1)), keyed_counts(sf.lit(None).cast("int"))).first()
    assert row is not None
    assert [counts(row[0]), counts(row[1])] == [{(1 << 53) - 1: 3}, {}]
    assert counts(None) == {}
