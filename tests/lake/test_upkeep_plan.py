"""What upkeep would do next, and when the job stops or is to be restarted, without Spark: over stand-ins."""

from __future__ import annotations

import time
from collections import deque
from types import SimpleNamespace

import pytest
from headrace_lake.upkeep.metrics import LakeMetrics
from headrace_lake.upkeep.operations import STALLED, STARTING, LakeHealth
from headrace_lake.upkeep.retention import LogCleaner

DAY = 86_400.0


@pytest.mark.parametrize(
    ("commits", "keep"),
    [
        ([(50, 3.0), (51, 3.0)], 50),
        ([(50, 3.0), (51, 1.0)], 0),  # a reader at version 49 needs the commit 50 for two days
        ([(50, 3.0)], 0),
        ([(50, 0.0), (51, 3.0), (100, 3.0), (101, 3.0), (150, 3.0), (151, 1.0)], 100),
        ([(49, 3.0), (51, 3.0)], 0),  # no checkpoint of ours
    ],
)
def test_a_checkpoint_is_old_enough_once_the_commit_after_it_is(commits: list[tuple[int, float]], keep: int) -> None:
    """`commits`: number and age in days."""
    now = time.time()
    seen = deque((number, now - age * DAY) for number, age in commits)
    storage = SimpleNamespace(names=lambda _: [f"{0:020d}.json"], exists=lambda _: True)
    cleaner = LogCleaner(storage, "/lake/events", SimpleNamespace(commits=seen), 2 * DAY)  # type: ignore[arg-type]
    assert cleaner.due() is bool(keep)
    assert cleaner._keep == keep


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
