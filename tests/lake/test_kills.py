"""SIGKILL at the steps of a batch, SIGSTOP in the middle of one, two jobs at once: every record is in the tables once.

What is killed or frozen is a process of its own. What lands the rest runs in the test's own JVM, which is there already.
"""

from __future__ import annotations

import sys

import pytest
from headrace_lake.tables.fence import transaction
from headrace_lake.tables.layout import BATCHES
from pyspark.sql import SparkSession

from tests.lake.lander import Bench, await_true, version
from tests.lake.runs import Runs
from tests.lake.stream import send_now
from tests.tiers import sized

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


KILLS = ("events written", "", "quarantine written", "batch written")
"""What a job has logged when it is killed; empty: while it writes events. All but the first: in the full tier."""
EVENTS_SENT = sized(12_000, 12_000, 200_000)


@pytest.fixture
def successor(spark: SparkSession, bench: Bench) -> Runs:
    """Runs of the job in this process, on the lake of `bench`."""
    runs = Runs(spark, bench.kafka, bench.folder)
    runs.sent = bench.sent
    return runs


def test_kills(bench: Bench, successor: Runs) -> None:
    send_now(bench.kafka, bench.sent, EVENTS_SENT, resend_every=100)
    for point in sized(KILLS[:1], KILLS[:1], KILLS):
        job = bench.start(batch_records=EVENTS_SENT // 20)
        if point:
            job.next(point)
        else:
            bench.await_files(job)
        job.kill()
    successor.run(batch_records=EVENTS_SENT)
    assert version(bench.lake, BATCHES) >= transaction(2, 0), "each start makes an epoch"
    successor.check()


def test_a_frozen_job_wakes_up_after_its_successor(bench: Bench, successor: Runs) -> None:
    """It is frozen where it has seen that the name of its commit is free; its successor takes the name meanwhile."""
    send_now(bench.kafka, bench.sent, 2_400)
    program = (sys.executable, "-m", "tests.lake.held_commit", str(bench.folder))
    older = bench.start(batch_records=100, launcher=program)
    older.next("claimed the tables")
    (bench.folder / "hold").touch()
    held = bench.folder / "held"
    await_true(held.exists, "a commit of events", older)
    older.freeze()
    successor.run(batch_records=700)
    send_now(bench.kafka, bench.sent, 400, mark="b")
    held.unlink()
    older.thaw()
    assert older.wait() == 1, older.tail()
    assert "another job has taken over: it claimed epoch " in older.reason()
    successor.run()
    successor.check()
