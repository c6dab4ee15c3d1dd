"""The clocks around the job: whether they agree, what is said of it, and from which time on ids have to be known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest
from headrace_lake.kafka import unlanded
from headrace_lake.spark.halt import KafkaAwayError
from headrace_lake.upkeep.clocks import TOLERANCE, ClockGuard
from headrace_lake.upkeep.metrics import LakeMetrics
from headrace_lake.upkeep.retention import first_kept
from structlog.testing import CapturingLogger

NOW = 1_770_000_000_000
YEARS = 2 * 365 * 86_400_000
HOUR = 3_600_000


class Brokers:
    def __init__(self, ends: dict[int, int], clock: int | None = None, newest: int | None = None) -> None:
        self.ends = ends
        self.clock = clock
        self.last = newest
        self.away = False

    def time(self) -> int | None:
        if self.away:
            raise KafkaAwayError("away")
        return self.clock

    def newest(self, pairs: Iterable[tuple[str, int]]) -> int | None:
        return self.last

    def offsets(self, pairs: Iterable[tuple[str, int]], *, earliest: bool) -> dict[tuple[str, int], int]:
        assert not earliest
        return {pair: self.ends[pair[1]] for pair in pairs}


def test_it_stops_and_goes_on_and_says_so_once() -> None:
    log, metrics, shift = CapturingLogger(), LakeMetrics(), [0.0]
    guard = ClockGuard(Brokers({}, NOW), metrics, log, lambda: NOW / 1000 + shift[-1])  # type: ignore[arg-type]

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


def test_while_kafka_is_away_only_a_record_of_now_confirms() -> None:
    shift, brokers = [0.0], Brokers({}, NOW)
    guard = ClockGuard(brokers, LakeMetrics(), CapturingLogger(), lambda: NOW / 1000 + shift[-1])  # type: ignore[arg-type]
    brokers.away = True
    assert not guard.agree(), "nothing has landed"
    guard.landed(NOW)
    assert guard.agree()
    guard.landed(None)
    shift.append(3600.0)
    assert not guard.agree()


def test_the_newest_landed_day_is_kept_whatever_the_clock_says() -> None:
    assert first_kept(30, NOW / 1000, "2026-02-02") == date(2026, 1, 3)
    assert first_kept(30, (NOW + YEARS) / 1000, "2026-02-02") == date(2026, 2, 2)
    assert first_kept(30, NOW / 1000, "") == date(2026, 1, 3)
    assert first_kept(10**9, NOW / 1000, "2026-02-02") == date.min, "more days than a calendar has: for ever"


def nothing(_: object) -> dict[tuple[str, int], int]:
    raise AssertionError


@pytest.mark.parametrize("kafka", [None, NOW, NOW + YEARS, NOW - YEARS])
@pytest.mark.parametrize("own", [NOW, NOW + HOUR, NOW + YEARS, NOW - YEARS])
@pytest.mark.parametrize("newest", [None, NOW - 60_000, NOW + YEARS])
def test_no_clock_alone_and_no_record_from_the_future_hides_what_landed_lately(
    monkeypatch: pytest.MonkeyPatch, own: int, kafka: int | None, newest: int | None
) -> None:
    monkeypatch.setattr(unlanded, "time", SimpleNamespace(time=lambda: own / 1000))
    told = [each for each in (own, kafka, newest) if each is not None]
    asked: Any = Brokers({0: 100}, kafka, newest)
    assert unlanded.oldest(asked, {("t", 0): 100}, nothing) == min(told)


def test_the_first_record_is_looked_for_until_it_is_found() -> None:
    """After an aborted transaction, or compaction, offsets have no record."""
    first = {0: (5, NOW - 70), 1: (400_000, NOW - 50)}  # partition -> offset and time; 2 has none at all
    asked = []

    def first_times(ranges: Mapping[tuple[str, int], tuple[int, int]]) -> dict[tuple[str, int], int]:
        asked.append({number: limits for (_, number), limits in ranges.items()})
        inside = {n for (_, n), (start, end) in ranges.items() if n in first and start <= first[n][0] < end}
        return {("t", number): first[number][1] for number in inside}

    brokers: Any = Brokers({0: 10, 1: 2_000_000, 2: 1_500, 3: 7}, newest=NOW)
    assert unlanded.oldest(brokers, {("t", 0): 0, ("t", 1): 10, ("t", 2): 0, ("t", 3): 7}, first_times) == NOW - 70
    assert asked == [
        {0: (0, 1), 1: (10, 11), 2: (0, 1)},
        {0: (1, 10), 1: (11, 1_011), 2: (1, 1_001)},
        {1: (1_011, 1_001_011), 2: (1_001, 1_500)},
    ]
