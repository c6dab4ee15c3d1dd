"""The ages of landed events, from counts that need no extra pass."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from headrace_lake.landing.freshness import Ages, ages, span
from headrace_lake.landing.landing import BatchResult
from headrace_lake.rows.keyed_counts import counts, keyed_counts
from headrace_lake.upkeep.metrics import LakeMetrics
from headrace_lake.upkeep.operations import LakeHealth
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

LANDED = datetime(2026, 5, 6, 12, tzinfo=UTC)


@pytest.mark.spark
def test_ages_are_counted_by_their_distance_to_the_commit(spark: SparkSession) -> None:
    old = [0.2, 0.5, 2.5, 2.6, 9.5, 50, 90_000, -3]
    rows = [(LANDED - timedelta(seconds=age), True) for age in old] + [(LANDED - timedelta(days=3), False)] * 5
    frame = spark.createDataFrame(rows, "received_time timestamp, counted boolean").withColumn(
        "landed_at", sf.lit(LANDED)
    )
    row = frame.agg(keyed_counts(sf.expr(f"if(counted, {span()}, null)"))).first()
    assert row is not None
    found = ages(counts(row[0]), seconds=1.5)
    assert [(start, end, count) for start, end, count in found.spans if count] == [
        (1.5, 2.0, 3), (3.5, 4.5, 2), (9.5, 11.5, 1), (31.5, 61.5, 1), (86_401.5, 604_801.5, 1),
    ]  # fmt: skip


def test_a_quantile_lies_where_the_count_is_reached() -> None:
    found = Ages([(0, 1, 50), (1, 2, 0), (2, 4, 50)])
    assert found.quantile(0.25) == 0.5
    assert found.quantile(0.5) == 1.0
    assert found.quantile(0.95) == pytest.approx(3.8)
    assert found.quantile(1) == 4.0
    assert Ages([]).quantile(0.5) == 0.0


def test_a_batch_is_counted_in_the_metrics() -> None:
    metrics = LakeMetrics()
    health = LakeHealth(metrics)
    result = BatchResult(
        batch=3, records=12, events=7, quarantined=3, looked_up=1, seconds=2.0, ends={("t", 0): 12},
        ages=Ages([(1, 3, 8), (100, 200, 1)]), duplicates={"forward": 2}, reasons={"bad_json": 2}, skipped={},
    )  # fmt: skip
    health.landed(result)
    text = metrics.exposition().decode()
    for line in (
        "headrace_lake_records_total 12.0",
        'headrace_lake_duplicates_total{protocol="forward"} 2.0',
        'headrace_lake_quarantined_total{reason="bad_json"} 2.0',
        'headrace_lake_quarantined_total{reason="other"} 1.0',
        'headrace_lake_freshness_seconds_bucket{le="1.0"} 0.0',
        'headrace_lake_freshness_seconds_bucket{le="2.0"} 8.0',
        'headrace_lake_freshness_seconds_bucket{le="120.0"} 8.0',
        'headrace_lake_freshness_seconds_bucket{le="+Inf"} 9.0',
        "headrace_lake_freshness_seconds_sum 166.0",
        'headrace_lake_freshness_last_seconds{quantile="0.5"} 2.125',
    ):
        assert line in text.splitlines(), line
