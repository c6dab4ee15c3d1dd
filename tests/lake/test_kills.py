"""SIGKILL at observed points, SIGSTOP in the middle of a batch, two jobs at once: every record is in the tables once.

What is killed or frozen is a process of its own. What lands the rest runs in the test's own JVM, which is there already.
"""

from __future__ import annotations

import shutil
import threading
import time

import pytest
from headrace_lake.spark.halt import HaltError, SupersededError
from headrace_lake.tables.fence import transaction
from headrace_lake.tables.layout import BATCHES
from pyspark.sql import SparkSession

from tests.lake.bench import Bench
from tests.lake.lander import TIMEOUT, version
from tests.lake.runs import Runs
from tests.lake.stream import check_landed, send_now
from tests.tiers import sized

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


# Where a job is killed, and whether it loses its checkpoint, too. The quick tier takes the second alone, the full tier all.
# Tests in this folder end a batch at the other points in their own process, which is cheaper (`test_start.py`).
KILLS = [("events being written", False), ("events written", True)]
MORE_KILLS = [
    ("quarantine written", False),
    ("batch written", False),
    ("batch begins", False),
    ("events written", False),
    ("quarantine written", True),
]
EVENTS_SENT = sized(40_000, 40_000, 200_000)
TRIED = 100
"""Records of a batch where one of 24 must be frozen at a point: on a busy machine the signal may come late for some."""


@pytest.fixture
def successor(spark: SparkSession, bench: Bench) -> Runs:
    """Runs of the job in this process, on the lake of `bench`."""
    runs = Runs(spark, bench.kafka, bench.folder)
    runs.sent = bench.sent
    return runs


def test_kills(bench: Bench, successor: Runs) -> None:
    send_now(bench.kafka, bench.sent, EVENTS_SENT, bad_every=500, resend_every=100)
    reached = []
    for point, loses_checkpoint in sized(KILLS[1:2], KILLS, KILLS + MORE_KILLS):
        job = bench.start(batch_records=EVENTS_SENT // 20)
        batch = bench.freeze_at(job, point)
        reached.append((point, batch))
        job.kill()
        if loses_checkpoint:
            shutil.rmtree(bench.folder / "checkpoint")
    successor.run(batch_records=EVENTS_SENT)
    assert version(bench.lake, BATCHES) >= transaction(2, 0), f"a lost checkpoint makes an epoch: {reached}"
    successor.check()


@pytest.mark.full
def test_a_second_job_with_a_fresh_checkpoint_takes_over(runs: Runs) -> None:
    """Both run in this process; `test_a_frozen_job_wakes_up_after_its_successor` has two processes."""
    runs.send(800)
    older = runs.job(once=False, batch_records=300)
    stopped: list[BaseException] = []

    def run() -> None:
        try:
            older.run()
        except SupersededError as error:
            stopped.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not runs.said("landed"):
        thread.join(0.05)
        assert thread.is_alive()
    newer = Runs(runs.spark.newSession(), runs.kafka, runs.lake.parent)
    newer.checkpoint, newer.sent = runs.lake.parent / "newer", runs.sent
    newer.run(batch_records=300)
    runs.send(400, mark="b")
    thread.join(TIMEOUT)
    assert "another job has taken over: it claimed epoch " in str(stopped[0])
    # The newer one claims 2, and one more whenever the older one writes to a table between two of its claims.
    with pytest.raises(HaltError, match=r"the checkpoint holds epoch 1, the tables are at epoch \d") as refused:
        runs.run()
    assert f"delete the checkpoint {runs.checkpoint} to take over" in str(refused.value)
    newer.run()
    newer.check()


@pytest.mark.full
def test_of_two_jobs_with_one_checkpoint_one_goes_on(bench: Bench) -> None:
    send_now(bench.kafka, bench.sent, 1_000)
    older = bench.start(batch_records=100_000)
    older.next("landed")
    newer = bench.start(batch_records=100_000)
    newer.next("landing")
    send_now(bench.kafka, bench.sent, 400, mark="b")
    deadline = time.monotonic() + TIMEOUT
    while older.alive() and newer.alive():
        assert time.monotonic() < deadline, older.tail()
        time.sleep(0.05)
    stopped, goes_on = (older, newer) if newer.alive() else (newer, older)
    assert stopped.wait() == 1, stopped.tail()
    assert "another job" in stopped.reason()
    goes_on.next("landed")
    goes_on.terminate()
    assert goes_on.wait() == 0, goes_on.tail()
    last = bench.start(once=True, batch_records=100_000)
    assert last.wait() == 0, last.tail()
    check_landed(bench.lake, bench.sent)


@pytest.mark.full
def test_a_frozen_job_wakes_up_after_its_successor_on_the_same_checkpoint(bench: Bench) -> None:
    send_now(bench.kafka, bench.sent, 2_400)
    older = bench.start(batch_records=TRIED)
    bench.freeze_at(older, "events written")
    newer = bench.start(once=True, batch_records=700)
    assert newer.wait() == 0, newer.tail()
    check_landed(bench.lake, bench.sent)
    older.thaw()
    assert older.wait() == 1, older.tail()
    assert "another job has gone on with this checkpoint" in older.reason()
    check_landed(bench.lake, bench.sent)


@pytest.mark.parametrize("point", ["events being written", pytest.param("events written", marks=pytest.mark.full)])
def test_a_frozen_job_wakes_up_after_its_successor(bench: Bench, successor: Runs, point: str) -> None:
    send_now(bench.kafka, bench.sent, 2_400)
    older = bench.start("older", batch_records=TRIED)
    bench.freeze_at(older, point)
    successor.run(batch_records=700)
    send_now(bench.kafka, bench.sent, 400, mark="b")
    older.thaw()
    assert older.wait() == 1, older.tail()
    assert "another job has taken over: it claimed epoch " in older.reason()
    successor.run()
    successor.check()


@pytest.mark.full
def test_it_ends_in_the_middle_of_maintenance(bench: Bench) -> None:
    """After SIGTERM it ends in order; after a kill the next job continues. No row is added, lost or duplicated."""
    busy = {"batch_records": 20, "maintenance_share": 0.9}  # more batches than small files may wait
    send_now(bench.kafka, bench.sent, 1_000)
    told = bench.start(**busy)
    told.next("maintenance begins")
    told.terminate()
    assert told.wait() == 0, told.tail()
    killed = bench.start(**busy)
    assert killed.next("maintenance begins")["task"] == "compact"
    killed.kill()
    last = bench.start(once=True, batch_records=100_000)
    assert last.wait() == 0, last.tail()
    check_landed(bench.lake, bench.sent)
