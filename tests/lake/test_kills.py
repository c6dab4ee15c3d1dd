"""SIGKILL at observed points, SIGSTOP in the middle of a batch, two jobs at once: every record is in the tables once."""

from __future__ import annotations

import os
import shutil
import time

import pytest
from headrace_lake.fence import transaction
from headrace_lake.tables import BATCHES

from tests.lake.bench import Bench
from tests.lake.lander import TIMEOUT, version
from tests.lake.stream import check_landed, send_now

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


# Where a job is killed, and whether its checkpoint is lost with it. The other three: with HEADRACE_FULL=1.
KILLS = [
    ("events being written", False),
    ("events written", True),
    ("quarantine written", False),
    ("batch written", False),
]
MORE_KILLS = [("batch begins", False), ("events written", False), ("quarantine written", True)]
EVENTS_SENT = 200_000


def test_kills(bench: Bench) -> None:
    send_now(bench.kafka, bench.sent, EVENTS_SENT, bad_every=500, resend_every=100)
    reached = []
    for point, loses_checkpoint in KILLS + (MORE_KILLS if os.environ.get("HEADRACE_FULL") else []):
        job = bench.start(batch_records=EVENTS_SENT // 20)
        batch = bench.freeze_at(job, point)
        reached.append((point, batch))
        job.kill()
        if loses_checkpoint:
            shutil.rmtree(bench.folder / "checkpoint")
    last = bench.start(once=True, batch_records=EVENTS_SENT)
    assert last.wait() == 0, last.tail()
    assert version(bench.lake, BATCHES) >= transaction(2, 0), f"a lost checkpoint makes an epoch: {reached}"
    check_landed(bench.lake, bench.sent)


def test_a_second_job_with_a_fresh_checkpoint_takes_over(bench: Bench) -> None:
    send_now(bench.kafka, bench.sent, 2_000)
    older = bench.start("older")
    older.next("landed")
    newer = bench.start("newer")
    newer.next("claimed the tables")
    send_now(bench.kafka, bench.sent, 400, mark="b")
    assert older.wait() == 1, older.tail()
    assert "another job has taken over: it claimed epoch " in older.reason()
    again = bench.start("older", once=True)
    assert again.wait() == 1, again.tail()
    assert "the checkpoint holds epoch 1, the tables are at epoch " in again.reason()
    assert f"delete the checkpoint {bench.folder / 'older'} to take over" in again.reason()
    newer.terminate()
    assert newer.wait() == 0, newer.tail()
    last = bench.start("newer", once=True, batch_records=100_000)
    assert last.wait() == 0, last.tail()
    check_landed(bench.lake, bench.sent)


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


def test_a_frozen_job_wakes_up_after_its_successor_on_the_same_checkpoint(bench: Bench) -> None:
    send_now(bench.kafka, bench.sent, 2_400)
    older = bench.start()
    bench.freeze_at(older, "events written")
    newer = bench.start(once=True, batch_records=700)
    assert newer.wait() == 0, newer.tail()
    check_landed(bench.lake, bench.sent)
    older.thaw()
    assert older.wait() == 1, older.tail()
    assert "another job has gone on with this checkpoint" in older.reason()
    check_landed(bench.lake, bench.sent)


@pytest.mark.parametrize("point", ["events being written", pytest.param("events written", marks=pytest.mark.full)])
def test_a_frozen_job_wakes_up_after_its_successor(bench: Bench, point: str) -> None:
    send_now(bench.kafka, bench.sent, 2_400)
    older = bench.start("older")
    bench.freeze_at(older, point)
    newer = bench.start("newer", once=True, batch_records=700)
    assert newer.wait() == 0, newer.tail()
    send_now(bench.kafka, bench.sent, 400, mark="b")
    older.thaw()
    assert older.wait() == 1, older.tail()
    assert "another job has taken over: it claimed epoch " in older.reason()
    last = bench.start("newer", once=True)
    assert last.wait() == 0, last.tail()
    check_landed(bench.lake, bench.sent)


@pytest.mark.full
def test_it_ends_in_the_middle_of_maintenance(bench: Bench) -> None:
    """Told to stop, by itself and in order; killed, the next one goes on: no row comes, goes or doubles."""
    busy = {"batch_records": 50, "maintenance_share": 0.9, "compact_files": 4}
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
