"""Whether the clocks around the job agree, and what is said of it."""

from __future__ import annotations

from datetime import date

from headrace_lake.spark.halt import KafkaAwayError
from headrace_lake.upkeep.clocks import TOLERANCE, ClockGuard
from headrace_lake.upkeep.metrics import LakeMetrics
from headrace_lake.upkeep.retention import first_kept
from structlog.testing import CapturingLogger

NOW = 1_770_000_000.0
HOUR = 3600.0
YEARS = 2 * 365 * 86_400.0


class Brokers:
    def __init__(self) -> None:
        self.away = False

    def time(self) -> int | None:
        if self.away:
            raise KafkaAwayError("away")
        return int(NOW * 1000)


def test_it_stops_and_goes_on_and_says_so_once() -> None:
    log, metrics, shift, brokers = CapturingLogger(), LakeMetrics(), [0.0], Brokers()
    guard = ClockGuard(brokers, metrics, log, lambda: NOW + shift[-1])  # type: ignore[arg-type]

    def value(name: str) -> float | None:
        return metrics.registry.get_sample_value(f"headrace_lake_{name}")

    said = []
    for seconds in (0.0, TOLERANCE, YEARS, TOLERANCE + 1, -HOUR, -TOLERANCE - 1, -TOLERANCE, 0.0):
        shift.append(seconds)
        said.append(guard.agree())
        assert value("clocks_disagree") == (not said[-1])
        assert value("clock_ahead_seconds") == seconds
    assert said == [True, True, False, False, False, False, True, True]
    assert [(call.args[0], call.kwargs["ahead"]) for call in log.calls] == [
        ("clocks disagree", YEARS), ("clocks agree", -TOLERANCE),
    ]  # fmt: skip


def test_while_kafka_is_away_only_a_record_of_now_confirms() -> None:
    shift, brokers = [0.0], Brokers()
    guard = ClockGuard(brokers, LakeMetrics(), CapturingLogger(), lambda: NOW + shift[-1])  # type: ignore[arg-type]
    brokers.away = True
    assert not guard.agree(), "nothing has landed"
    guard.landed(int(NOW * 1000))
    assert guard.agree()
    guard.landed(None)
    shift.append(HOUR)
    assert not guard.agree()


def test_the_newest_landed_day_is_kept_whatever_the_clock_says() -> None:
    assert first_kept(30, NOW, "2026-02-02") == date(2026, 1, 3)
    assert first_kept(30, NOW + YEARS, "2026-02-02") == date(2026, 2, 2)
    assert first_kept(30, NOW, "") == date(2026, 1, 3)
    assert first_kept(10**9, NOW, "2026-02-02") == date.min, "more days than a calendar has: for ever"
