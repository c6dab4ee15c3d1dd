"""Rows are counted exactly by their key, whatever the number of keys, of rows and of tasks."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from headrace_lake.dedup.index import DUPLICATE
from headrace_lake.kafka.checkpoint import Range
from headrace_lake.landing import landing_events
from headrace_lake.landing.freshness import ages
from headrace_lake.landing.landing_events import PartitionCounts
from headrace_lake.rows.decode import FAULT, GAP, LOOKED_UP
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


@pytest.mark.spark
def test_one_tally_tells_partitions_kinds_protocols_and_ages_apart(spark: SparkSession) -> None:
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
        rows.append((number, offset, fault, kind == "duplicate", protocol, received, landed, offset % 7 == 0, age))
    names = (
        f"partition int, offset long, `{FAULT}` string, `{DUPLICATE}` boolean, protocol string, received_time timestamp,"
        f" landed_at timestamp, `{GAP}` boolean, age double"
    )
    ranges = [Range("t", number, 0, 900) for number in (0, 1, 199)]
    observation = Observation()
    frame = spark.createDataFrame(rows, names).withColumn(LOOKED_UP, sf.expr("offset % 5 = 0"))
    frame = frame.selectExpr("*", *landing_events._counted_by(ranges))
    frame = frame.observe(observation, *landing_events._measures(erased=False))
    frame.write.format("noop").mode("append").save()
    found = landing_events._measured(ranges, observation.get)

    kinds = Counter((row[0], "faulty" if row[2] else "duplicate" if row[3] else "wanted") for row in rows)
    for number in (0, 1, 199):
        faulty, wanted, resent = (kinds[number, kind] for kind in ("faulty", "wanted", "duplicate"))
        assert found.partitions[number] == PartitionCounts(faulty + wanted + resent, wanted + resent, resent)
    resent = Counter({"strange": "other"}.get(str(row[4]), str(row[4])) for row in rows if row[3])
    assert found.duplicates == resent
    wanted_ages = Counter(float(row[8]) for row in rows if not row[2] and not row[3])
    edges = [end for _, end, _ in ages({}, 0).spans]
    expected = Counter[float]()
    for age, count in wanted_ages.items():
        expected[edges[min(bisect_left(edges, age), len(edges) - 1)]] += count
    assert {end: count for _, end, count in ages(found.ages, 0).spans if count} == expected
    assert found.looked_up == 180
    assert found.markers == sum(row[7] and not row[2] for row in rows)
    newest = landed - timedelta(seconds=min(seconds))
    assert max(found.latest.values()) <= newest.timestamp() * 1000
    assert set(found.latest) <= {0, 1, 199}
