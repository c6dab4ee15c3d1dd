"""The job's health and metrics by what it is told, without Spark."""

from __future__ import annotations

import time

import pytest
from headrace_lake.dedup.index import IndexState
from headrace_lake.landing.freshness import Ages
from headrace_lake.landing.landing import BatchResult
from headrace_lake.landing.plan import DedupStatus
from headrace_lake.upkeep.metrics import LakeMetrics
from headrace_lake.upkeep.operations import STALLED, STARTING, LakeHealth


@pytest.mark.parametrize(
    ("reason", "silent", "alive"),
    [
        ("", STALLED - 1, True),
        ("", STALLED + 1, False),
        ("Spark is starting", STARTING - 1, True),  # on a busy machine a JVM takes that long
        ("Spark is starting", STARTING + 1, False),
    ],
)
def test_a_start_may_take_longer_than_a_turn(
    monkeypatch: pytest.MonkeyPatch, reason: str, silent: float, alive: bool
) -> None:
    health = LakeHealth(LakeMetrics())
    then = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: then)
    health.set_waiting(reason)
    health.heartbeat()
    monkeypatch.setattr(time, "monotonic", lambda: then + silent)
    assert (health.live_problems() == []) is alive


def test_memory_that_ran_out_is_said_while_it_is_ready() -> None:
    health = LakeHealth(LakeMetrics())
    health.set_waiting("")
    for short, notes in (
        (False, []), (True, ["resends are recognised within 100 s only: LAKE__DEDUP_MEMORY is too small"]), (False, []),
    ):  # fmt: skip
        status = DedupStatus(IndexState(80, 6400, 1), 100, short)
        health.landed(BatchResult(1, 10, 7, 1.0, ends={}, ages=Ages([]), duplicates={}, dedup_status=status))
        assert (health.notes(), health.ready_problems()) == (notes, [])


def test_a_batch_is_counted_in_the_metrics() -> None:
    metrics = LakeMetrics()
    ages = Ages([(1, 3, 8), (100, 200, 1)])
    result = BatchResult(3, 12, 7, 2.0, ends={}, ages=ages, duplicates={"forward": 2}, reasons={"bad_json": 2})
    LakeHealth(metrics).landed(result)
    found = metrics.exposition().decode().splitlines()
    for line in (
        "records_total 12.0", 'duplicates_total{protocol="forward"} 2.0', 'quarantined_total{reason="bad_json"} 2.0',
        'freshness_seconds_bucket{le="1.0"} 0.0', 'freshness_seconds_bucket{le="2.0"} 8.0',
        'freshness_seconds_bucket{le="+Inf"} 9.0', "freshness_seconds_sum 166.0",
        'freshness_last_seconds{quantile="0.5"} 2.125',
    ):  # fmt: skip
        assert f"headrace_lake_{line}" in found, line
