"""SIGKILL at observed points, SIGSTOP in the middle of a batch, two jobs at once: every record is in the tables once."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from headrace_common.settings import KafkaSettings
from headrace_lake.fence import transaction
from headrace_lake.tables import BATCHES, EVENTS, QUARANTINE

from tests.lake.lander import TIMEOUT, Lander, await_true, version
from tests.lake.stream import Sent, check_landed, send_now

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


class Bench:
    """One topic pair, one lake, and the jobs that a test starts on them."""

    def __init__(self, kafka: KafkaSettings, folder: Path) -> None:
        self.kafka = kafka
        self.lake = folder / "lake"
        self.folder = folder
        self.sent = Sent()
        self.jobs: list[Lander] = []

    def start(self, checkpoint: str = "checkpoint", *, once: bool = False, batch_records: int = 1000) -> Lander:
        job = Lander(self.kafka, self.lake, self.folder / checkpoint, once=once, batch_records=batch_records)
        self.jobs.append(job)
        return job

    def files(self) -> set[Path]:
        """Files of the events table, committed or being written."""
        return {path for path in (self.lake / EVENTS).rglob("*.parquet") if "_delta_log" not in path.parts}

    def freeze_while_writing(self, job: Lander) -> int:
        """Freezes `job` in the middle of its write of events: files are there, their commit is not. The batch."""
        job.next("landing")
        while True:
            known, before = version(self.lake, EVENTS), self.files()
            await_true(lambda before=before: bool(self.files() - before), "a file of the events table", job)
            job.freeze()
            if version(self.lake, EVENTS) == known:
                return (known & 0xFFFFFFFF) + 1
            job.thaw()  # the commit was faster

    def freeze_at(self, job: Lander, point: str) -> int:
        """Freezes `job` at `point` and makes sure by the tables' logs that it is there. The batch."""
        if point == "events being written":
            return self.freeze_while_writing(job)
        while True:
            line = job.next(point)
            job.freeze()
            batch = line["batch"]
            if self._is_at(point, batch):
                return batch
            job.thaw()  # the signal came late: try the next batch

    def _is_at(self, point: str, batch: int) -> bool:
        done = {"batch begins": 0, "events written": 1, "quarantine written": 2, "batch written": 3}[point]
        numbers = [version(self.lake, table) & 0xFFFFFFFF for table in (EVENTS, QUARANTINE, BATCHES)]
        return [number == batch for number in numbers] == [index < done for index in range(3)]


@pytest.fixture
def bench(topics: KafkaSettings, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(topics, tmp_path)
    yield made
    for job in made.jobs:
        job.kill()


def test_seven_kills(bench: Bench) -> None:
    send_now(bench.kafka, bench.sent, 12_000)
    kills = [
        ("batch begins", False),
        ("events written", False),
        ("events written", True),
        ("quarantine written", False),
        ("batch written", False),
        ("events being written", False),
        ("quarantine written", True),
    ]
    reached = []
    for point, loses_checkpoint in kills:
        job = bench.start()
        batch = bench.freeze_at(job, point)
        reached.append((point, batch))
        job.kill()
        if loses_checkpoint:
            shutil.rmtree(bench.folder / "checkpoint")
    last = bench.start(once=True, batch_records=100_000)
    assert last.wait() == 0, last.tail()
    assert version(bench.lake, BATCHES) >= transaction(3, 0), f"two lost checkpoints make three epochs: {reached}"
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
    send_now(bench.kafka, bench.sent, 1_200)
    older = bench.start()
    bench.freeze_at(older, "events written")
    newer = bench.start(once=True, batch_records=700)
    assert newer.wait() == 0, newer.tail()
    check_landed(bench.lake, bench.sent)
    older.thaw()
    assert older.wait() == 1, older.tail()
    assert "another job has gone on with this checkpoint" in older.reason()
    check_landed(bench.lake, bench.sent)


@pytest.mark.parametrize("point", ["events being written", "events written"])
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
