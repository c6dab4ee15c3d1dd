"""SIGKILL at the steps of a batch, SIGSTOP in the middle of one, two jobs at once: every record is in the tables once.

What is killed or frozen is a process of its own. What lands the rest runs in the test's own JVM, which is there already.
"""

from __future__ import annotations

import sys

import pytest
from headrace_lake.tables.fence import transaction
from headrace_lake.tables.layout import BATCHES

from tests.lake.lander import version
from tests.lake.runs import Runs
from tests.tiers import sized

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


KILLS = ("events written", "", "quarantine written", "batch written")
"""What a job has logged when it is killed; empty: while it writes events. All but the first: in the full tier."""
EVENTS_SENT = sized(12_000, 12_000, 200_000)


def test_kills(runs: Runs) -> None:
    runs.send(EVENTS_SENT, resend_every=100)
    for point in sized(KILLS[:1], KILLS[:1], KILLS):
        job = runs.start(batch_records=EVENTS_SENT // 20)
        if point:
            job.next(point)
        else:
            runs.await_files(job)
        job.kill()
    runs.run(batch_records=EVENTS_SENT)
    assert version(runs.lake, BATCHES) >= transaction(2, 0), "each start makes an epoch"
    runs.check()


def test_a_frozen_job_wakes_up_after_its_successor(runs: Runs) -> None:
    """It is frozen where it has seen that the name of its commit is free; its successor takes the name meanwhile."""
    runs.send(2_400)
    program = (sys.executable, "-m", "tests.lake.held_commit", str(runs.folder))
    older = runs.start(batch_records=100, launcher=program)
    older.next("claimed the tables")
    (runs.folder / "hold").touch()
    held = runs.folder / "held"
    older.until(held.exists, "a commit of events")
    older.freeze()
    runs.run(batch_records=700)
    runs.send(400, mark="b")
    held.unlink()
    older.thaw()
    assert older.wait() == 1, older.tail()
    assert "another job has taken over: it claimed epoch " in older.reason()
    runs.run()
    runs.check()
