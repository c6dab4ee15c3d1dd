"""What upkeep would do next, and when the job stops or is to be restarted, without Spark: over stand-ins."""

from __future__ import annotations

import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from headrace_lake.spark.halt import SupersededError
from headrace_lake.tables.fence import transaction
from headrace_lake.tables.layout import BATCHES, EVENTS
from headrace_lake.upkeep import retention
from headrace_lake.upkeep.maintenance import Maintenance
from headrace_lake.upkeep.metrics import LakeMetrics
from headrace_lake.upkeep.operations import STALLED, STARTING, LakeHealth
from headrace_lake.upkeep.retention import LogCleaner

DAY = 86_400.0


def table(latest: int = transaction(1, 5), /, **properties: str) -> SimpleNamespace:
    day = SimpleNamespace(files=1, size=1, small={}, newest=0.0)
    return SimpleNamespace(
        latest=lambda: latest, properties=properties, days={"2020-01-01": day, "2030-01-01": day}, commits=deque([(7, 1.0)]),
        added=0, small_files=lambda: 0,
    )  # fmt: skip


def maintenance(monkeypatch: pytest.MonkeyPatch, *, agree: bool = True, **tables: SimpleNamespace) -> Any:
    made: Any = Maintenance.__new__(Maintenance)
    gauge = SimpleNamespace(labels=lambda _: SimpleNamespace(inc=lambda _: None, set=lambda _: None))
    metrics = SimpleNamespace(files=gauge, small_files=gauge, table_bytes=gauge)
    settings = SimpleNamespace(retention_days=30, file_bytes=1, vacuum_every=DAY, vacuum_age=DAY)
    made._tables = {BATCHES: table(), EVENTS: table(), **tables}
    for name, value in {
        "_lake": None, "_epoch": 1, "_agree": lambda: agree, "_settings": settings, "_metrics": metrics,
        "_not_before": {},
        "_cleaners": {EVENTS: SimpleNamespace(due=lambda: True, clean=lambda _: None)}, "_stopping": lambda: False,
        "_shrinkage": dict.fromkeys(made._tables, SimpleNamespace(ratio=1.0)),
    }.items():  # fmt: skip
        setattr(made, name, value)
    monkeypatch.setattr(retention, "vacuum_due", lambda *_: True)
    return made


def test_nothing_is_deleted_by_the_time_while_clocks_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [task for task, *_ in maintenance(monkeypatch)._pieces()]
    assert tasks == ["retain", "clean_log", "vacuum", "vacuum"]
    assert [task for task, *_ in maintenance(monkeypatch, agree=False)._pieces()] == []


def test_maintenance_stops_when_another_job_has_claimed_any_table(monkeypatch: pytest.MonkeyPatch) -> None:
    maintenance(monkeypatch)._look()
    with pytest.raises(SupersededError, match="it claimed epoch 2 of the tables, this job holds epoch 1"):
        maintenance(monkeypatch, events=table(transaction(2, 0) - 1))._look()


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
