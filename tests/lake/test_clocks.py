"""Whether the clocks around the job agree, and what is said of it."""

from __future__ import annotations

from datetime import date

import pytest
from headrace_lake.spark.halt import KafkaAwayError
from headrace_lake.upkeep.clocks import TOLERANCE, ClockGuard, Clocks, Witness, doubted
from headrace_lake.upkeep.metrics import LakeMetrics
from headrace_lake.upkeep.retention import first_kept
from structlog.testing import CapturingLogger

NOW = 1_770_000_000.0
HOUR = 3600.0
YEARS = 2 * 365 * 86_400.0
KAFKA, RECORD, COMMIT = Witness.KAFKA, Witness.RECORD, Witness.COMMIT


@pytest.mark.parametrize(
    ("own", "kafka", "record", "commit", "found"),
    [
        (0, 0, 0, 0, []),
        (0, 0, -YEARS, -YEARS, []),  # nothing came for long: Kafka's clock confirms
        (0, 0, None, None, []),
        (0, TOLERANCE, 0, 0, []),
        (0, TOLERANCE + 1, 0, 0, [KAFKA]),
        (0, -TOLERANCE, 0, 0, []),
        (0, -TOLERANCE - 1, 0, 0, [KAFKA]),
        (0, 0, TOLERANCE, 0, []),
        (0, 0, TOLERANCE + 1, 0, [RECORD]),
        (0, 0, 0, TOLERANCE, []),
        (0, 0, 0, TOLERANCE + 1, [COMMIT]),
        (HOUR, 0, 0, 0, [KAFKA]),
        (-HOUR, 0, 0, 0, [COMMIT, KAFKA, RECORD]),
        (YEARS, 0, 0, 0, [KAFKA]),
        (-YEARS, 0, 0, 0, [COMMIT, KAFKA, RECORD]),
        (0, 0, -60, YEARS, [COMMIT]),  # it was ahead, and is right again
        (0, None, 0, 0, []),
        (0, None, -TOLERANCE, 0, []),
        (0, None, -TOLERANCE - 1, 0, [RECORD]),  # nobody confirms it
        (0, None, None, 0, [RECORD]),
        (YEARS, None, 0, YEARS, [RECORD]),  # the commit is its own
        (YEARS, 0, 0, YEARS, [KAFKA]),
    ],
)
def test_who_contradicts(
    own: float, kafka: float | None, record: float | None, commit: float | None, found: list[Witness]
) -> None:
    times = [None if shift is None else NOW + shift for shift in (own, kafka, record, commit)]
    assert doubted(Clocks(*times)) == found  # type: ignore[arg-type]


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
    guard.landed(int(NOW * 1000))

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"headrace_lake_{name}", labels)

    said = []
    for seconds in (0.0, 0.0, YEARS, YEARS, -HOUR, 0.0, 0.0):
        shift.append(seconds)
        said.append(guard.agree(NOW))
        assert value("clocks_disagree") == (not said[-1])
        assert value("clock_ahead_seconds", clock="kafka") == seconds
    assert said == [True, True, False, False, False, True, True]
    assert [(call.method_name, call.args[0]) for call in log.calls] == [
        ("warning", "clocks disagree"), ("warning", "clocks disagree"), ("info", "clocks agree"),
    ]  # fmt: skip
    assert log.calls[0].kwargs["doubted"] == "kafka"
    assert log.calls[0].kwargs["own"] == "2028-02-02T02:40:00Z"


def test_while_kafka_is_away_only_a_record_of_now_confirms() -> None:
    shift, brokers = [0.0], Brokers()
    guard = ClockGuard(brokers, LakeMetrics(), CapturingLogger(), lambda: NOW + shift[-1])  # type: ignore[arg-type]
    brokers.away = True
    assert not guard.agree(NOW), "nothing has landed"
    guard.landed(int(NOW * 1000))
    assert guard.agree(NOW)
    guard.landed(None)
    shift.append(HOUR)
    assert not guard.agree(NOW)


def test_the_newest_landed_day_is_kept_whatever_the_clock_says() -> None:
    assert first_kept(30, NOW, "2026-02-02") == date(2026, 1, 3)
    assert first_kept(30, NOW + YEARS, "2026-02-02") == date(2026, 2, 2)
    assert first_kept(30, NOW, "") == date(2026, 1, 3)
