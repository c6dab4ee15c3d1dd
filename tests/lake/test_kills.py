"""SIGKILL at the steps of a batch, SIGSTOP in the middle of one, two jobs at once: every record is in the tables once.

What is killed or frozen is a process of its own. What lands the rest runs in the test's own JVM, which is there already.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import headrace_lake.__main__
import psutil
import pyspark
import pytest
from headrace_cli.machine.jars import jars
from headrace_lake.tables.fence import transaction
from headrace_lake.tables.layout import BATCHES

from tests.contract.processes import below, command, kill
from tests.lake.lander import Lander, version
from tests.lake.runs import Runs
from tests.tiers import sized

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


KILLS = ("events written", "", "quarantine written", "batch written")
"""What a job has logged when it is killed; empty: while it writes events. All but the first: in the full tier."""
EVENTS_SENT = sized(2_400, 2_400, 200_000)


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
    runs.run()
    held.unlink()
    older.thaw()
    assert older.wait() == 1, older.tail()
    assert "another job has taken over: it claimed epoch " in older.reason()
    runs.check()


NO_PYTHON = {"PYSPARK_PYTHON": "/nowhere/python", "PYSPARK_DRIVER_PYTHON": sys.executable}
"""Executors would fail with this, if they needed Python."""


def submitted(runs: Runs, **options: Any) -> Lander:
    """The job, submitted as in docs/lake-clusters.md, to a standalone cluster that lives in the driver but for its executors."""
    listed = ",".join(map(str, sorted(jars("spark").glob("*.jar"))))
    launcher = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local-cluster[2,1,640]", "--jars", listed,
        "--driver-java-options", "-XX:-DontCompileHugeMethods", "--conf", "spark.executor.memory=512m",
        headrace_lake.__main__.__file__,
    ]  # fmt: skip
    return runs.start(launcher=launcher, variables=NO_PYTHON, jars=None, master=None, **options)


def executors(job: Lander) -> list[psutil.Process]:
    return [each for each in below(job.pid) if any("ExecutorBackend" in word for word in command(each))]


@pytest.mark.full
def test_an_executor_and_the_driver_are_killed(runs: Runs) -> None:
    runs.send(12_000, resend_every=100)
    job = submitted(runs)
    job.until(lambda: len(executors(job)) == 2, "an executor on each worker")
    batch = runs.await_files(job)
    kill(executors(job)[0].pid)  # most likely before the driver commits what its executors write
    while job.next("landed")["batch"] < batch:
        pass
    job.next("events written")
    job.kill()
    last = submitted(runs, once=True, batch_records=100_000)
    assert last.wait() == 0, last.tail()
    runs.check()
