"""The job's health and metrics by what it is told, without Spark."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime

import pytest
from headrace_lake.dedup.index import IndexState
from headrace_lake.landing.landing import BatchResult
from headrace_lake.landing.left_out import LeftOut
from headrace_lake.landing.plan import DedupStatus, Landed
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


def test_a_batch_is_counted_in_the_metrics() -> None:
    metrics = LakeMetrics()
    landed = Landed(
        datetime.now(UTC), Counter({("t", 0): 12}), 9, 0, [LeftOut("id", 0, 1, "d.1", "forward")] * 2, ages={0: 8, 148: 1},
        reasons={"bad_json": 2},
    )  # fmt: skip
    status = DedupStatus(IndexState(0, 0, None), 0.0)
    LakeHealth(metrics).landed(BatchResult(3, 2.0, {("t", 0): 12}, landed, status))
    found = metrics.exposition().decode().splitlines()
    for line in (
        "records_total 12.0", 'duplicates_total{protocol="forward"} 2.0', 'quarantined_total{reason="bad_json"} 2.0',
        'freshness_seconds_bucket{le="1.0"} 0.0', 'freshness_seconds_bucket{le="2.0"} 8.0',
        'freshness_seconds_bucket{le="+Inf"} 9.0', "freshness_seconds_sum 166.0",
        'freshness_last_seconds{quantile="0.5"} 2.0',
    ):  # fmt: skip
        assert f"headrace_lake_{line}" in found, line
