"""What upkeep would do next, and when the job stops or is to be restarted, without Spark: over stand-ins."""

from __future__ import annotations

import time

import pytest
from headrace_lake.upkeep.metrics import LakeMetrics
from headrace_lake.upkeep.operations import STALLED, STARTING, LakeHealth

DAY = 86_400.0


@pytest.mark.parametrize(
    ("reason", "silent", "alive"),
    [
        ("", STALLED - 1, True),
        ("", STALLED + 1, False),
        ("Spark is starting", STALLED + 1, True),  # on a busy machine a JVM takes that long
        ("Spark is starting", STARTING - 1, True),
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
