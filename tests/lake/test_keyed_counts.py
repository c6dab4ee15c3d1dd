"""Rows are counted exactly by their key, whatever the number of keys, of rows and of tasks; so are the ages of landed events."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from headrace_lake.dedup.index import DUPLICATE
from headrace_lake.landing import on_spark
from headrace_lake.landing.freshness import ages
from headrace_lake.landing.left_out import LeftOut
from headrace_lake.rows.decode import FAULT
from headrace_lake.rows.keyed_counts import counts, keyed_counts
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as sf


@pytest.mark.spark
@pytest.mark.parametrize(("keys", "tasks"), [(7, 3), (5_000, 2)])
def test_counts_are_exact(spark: SparkSession, keys: int, tasks: int) -> None:
    """Each task meets every key; some rows have none."""
    rows = 6 * keys + 1
    key = f"if(id % 5 = 0, null, id * 7919 % {keys})"
    observation = Observation()
    frame = spark.range(0, rows, 1, tasks).observe(observation, keyed_counts(sf.expr(key)).alias("found"))
    frame.write.format("noop").mode("append").save()
    assert counts(observation.get["found"]) == Counter(number * 7919 % keys for number in range(rows) if number % 5)


@pytest.mark.spark
def test_a_batch_is_counted_while_it_is_written(spark: SparkSession) -> None:
    landed, draw = datetime(2026, 5, 6, 12, tzinfo=UTC), random.Random(3)
    seconds = (-5.0, 0.25, 0.5, 7.0, 100.0, 1e6)
    rows = []
    for offset in range(900):
        number, kind, age = (
            draw.choice((0, 1, 199)),
            draw.choice(("faulty", "wanted", "duplicate")),
            draw.choice(seconds),
        )
        protocol = None if kind == "faulty" else draw.choice(("forward", "segment", "strange"))
        fault = "malformed_header" if kind == "faulty" else None
        received = landed - timedelta(seconds=age)
        rows.append((number, offset, fault, kind == "duplicate", protocol, received, landed, age))
    names = (
        f"partition int, offset long, `{FAULT}` string, `{DUPLICATE}` boolean, protocol string, received_time timestamp,"
        " landed_at timestamp, age double"
    )
    observation = Observation()
    frame = spark.createDataFrame(rows, names).selectExpr("*", "'id' as topic_id", "concat('d.', offset) as event_id")
    frame = frame.selectExpr("*", on_spark._AGED)
    frame = frame.observe(observation, *on_spark._measures(erased=False))
    frame.write.format("noop").mode("append").save()
    found = on_spark._measured(observation.get)

    assert found.records == Counter(row[0] for row in rows)
    assert found.faulty == sum(row[2] is not None for row in rows)
    assert found.events == sum(not row[2] and not row[3] for row in rows)
    again = [LeftOut("id", row[0], row[1], f"d.{row[1]}", row[4]) for row in rows if row[3]]
    assert sorted(found.left_out) == sorted(again)
    wanted_ages = Counter(float(row[7]) for row in rows if not row[2] and not row[3])
    edges = [end for _, end, _ in ages({}, 0).spans]
    expected = Counter[float]()
    for age, count in wanted_ages.items():
        expected[edges[min(bisect_left(edges, age), len(edges) - 1)]] += count
    assert {end: count for _, end, count in ages(found.ages, 0).spans if count} == expected
    assert found.newest == round((landed - timedelta(seconds=min(seconds))).timestamp() * 1000)
