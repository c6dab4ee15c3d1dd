"""The job's health, metrics and clocks by what it is told, without Spark."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, date, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from headrace_lake.dedup.index import IndexState
from headrace_lake.kafka import unlanded
from headrace_lake.landing.landing import BatchResult
from headrace_lake.landing.left_out import LeftOut
from headrace_lake.landing.plan import DedupStatus, Landed
from headrace_lake.upkeep.clocks import TOLERANCE, ClockGuard
from headrace_lake.upkeep.metrics import LakeMetrics
from headrace_lake.upkeep.operations import STALLED, STARTING, LakeHealth
from headrace_lake.upkeep.retention import first_kept
from structlog.testing import CapturingLogger

NOW = 1_770_000_000_000
YEARS = 2 * 365 * 86_400_000
HOUR = 3_600_000


def brokers(newest: int | None, *ends: int) -> Any:
    """Brokers with a topic `t`, and the ends of its partitions."""
    return SimpleNamespace(
        newest=lambda _: newest,
        offsets=lambda pairs, *, earliest: {pair: 0 if earliest else ends[pair[1]] for pair in pairs},
    )


def test_it_stops_and_goes_on_and_says_so_once() -> None:
    log, metrics, shift = CapturingLogger(), LakeMetrics(), [0.0]
    guard = ClockGuard(metrics, log, lambda: NOW / 1000 + shift[-1], lambda: 7.0)  # type: ignore[arg-type]
    assert not guard.agree(), "nothing has landed"
    guard.landed(NOW)
    guard.landed(None)

    def value(name: str) -> float | None:
        return metrics.registry.get_sample_value(f"headrace_lake_{name}")

    said = []
    for seconds in (0.0, TOLERANCE, 1e8, TOLERANCE + 1, -TOLERANCE - 1, -TOLERANCE):
        shift.append(seconds)
        said.append(guard.agree())
        assert value("clocks_disagree") == (not said[-1])
        assert value("clock_ahead_seconds") == seconds
    assert said == [True, True, False, False, False, True]
    assert [(call.args[0], call.kwargs["ahead"]) for call in log.calls] == [
        ("clocks disagree", 1e8), ("clocks agree", -TOLERANCE),
    ]  # fmt: skip


def test_the_newest_landed_day_is_kept_whatever_the_clock_says() -> None:
    assert first_kept(30, NOW / 1000, "2026-02-02") == date(2026, 1, 3)
    assert first_kept(30, (NOW + YEARS) / 1000, "2026-02-02") == date(2026, 2, 2)
    assert first_kept(30, NOW / 1000, "") == date(2026, 1, 3)
    assert first_kept(10**9, NOW / 1000, "2026-02-02") == date.min, "more days than a calendar has: for ever"


@pytest.mark.parametrize("own", [NOW, NOW + HOUR, NOW + YEARS, NOW - YEARS])
@pytest.mark.parametrize("newest", [None, NOW - 60_000, NOW + YEARS])
def test_no_clock_alone_and_no_record_from_the_future_hides_what_landed_lately(
    monkeypatch: pytest.MonkeyPatch, own: int, newest: int | None
) -> None:
    monkeypatch.setattr(unlanded, "time", SimpleNamespace(time=lambda: own / 1000))
    told = [each for each in (own, newest) if each is not None]
    kafka, nothing = brokers(newest, 100), Mock(side_effect=AssertionError)
    assert unlanded.ids_since(kafka, [("t", 0)], {("t", 0): 100}, 7.0, nothing) == min(told) - 7000


def test_of_a_partition_that_lags_the_first_record_counts() -> None:
    """After an aborted transaction, or compaction, offsets have no record."""
    asked = []

    def first_times(ranges: Mapping[tuple[str, int], tuple[int, int]]) -> dict[tuple[str, int], int]:
        asked.append(dict(ranges))
        return {place: NOW - 70 for place in ranges if place[1] != 1}

    kafka = brokers(NOW, 10, 2_000_000, 7)
    assert unlanded.ids_since(kafka, [("t", 0), ("t", 2)], {("t", 0): 3, ("t", 2): 7}, 0.0, first_times) == NOW - 70
    none = unlanded.ids_since(kafka, [("t", 1)], {("t", 1): 10}, 0.0, first_times)
    assert none == 0, "all ids are read where none is found"
    assert asked == [{("t", 0): (3, 10)}, {("t", 1): (10, 1010)}]


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
    ):  # fmt: skip
        assert f"headrace_lake_{line}" in found, line
