"""The job on a standalone cluster, submitted with `spark-submit`: hosts die, the driver dies, every record lands once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace_lake.__main__
import pytest
from headrace_cli.machine.jars import jars

from tests.lake.cluster import EXECUTOR_MEMORY, Cluster, submit
from tests.lake.lander import Bench, Lander, await_true
from tests.lake.stream import check_landed, send_now

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.full]

NO_PYTHON = {"PYSPARK_PYTHON": "/nowhere/python"}
"""Executors would fail with this, if they needed Python."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster", environment=NO_PYTHON)
    yield made
    made.stop()


def submitted(bench: Bench, cluster: Cluster, **options: Any) -> Lander:
    """The job, submitted as in docs/lake-clusters.md."""
    listed = ",".join(map(str, sorted(jars("spark").glob("*.jar"))))
    launcher = submit(
        headrace_lake.__main__.__file__, "--master", cluster.master, "--jars", listed,
        "--driver-java-options", "-XX:-DontCompileHugeMethods", "--executor-memory", EXECUTOR_MEMORY,
    )  # fmt: skip
    python = {**NO_PYTHON, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return bench.start(launcher=launcher, variables=python, jars=None, master=None, **options)


def test_a_worker_and_the_driver_are_killed(bench: Bench, cluster: Cluster) -> None:
    send_now(bench.kafka, bench.sent, 12_000, resend_every=100)
    job = submitted(bench, cluster, batch_records=1_000)
    await_true(lambda: len(cluster.executors(0)) == len(cluster.executors(1)) == 1, "an executor on each worker", job)
    batch = bench.freeze_while_writing(job)  # before the driver commits what its executors write
    assert cluster.kill_worker(0) == 1
    job.thaw()
    while job.next("landed")["batch"] < batch:
        pass
    await_true(lambda: cluster.alive() == 1, "the master misses the worker", job, alive=False)
    bench.freeze_at(job, "events written")
    job.kill()
    last = submitted(bench, cluster, once=True, batch_records=100_000)
    assert last.wait() == 0, last.tail()
    await_true(
        lambda: len(cluster.state().get("completedapps", ())) == 2, "both runs were the cluster's", last, alive=False
    )
    check_landed(bench.lake, bench.sent)
