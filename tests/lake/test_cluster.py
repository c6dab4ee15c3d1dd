"""The job by `spark-submit` on executors of their own, which die, and then the driver does: every record lands once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import headrace_lake.__main__
import psutil
import pyspark
import pytest
from headrace_cli.machine.jars import jars

from tests.contract.processes import below, command, kill
from tests.lake.lander import Bench, Lander

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.full]

NO_PYTHON = {"PYSPARK_PYTHON": "/nowhere/python", "PYSPARK_DRIVER_PYTHON": sys.executable}
"""Executors would fail with this, if they needed Python."""


def submitted(bench: Bench, **options: Any) -> Lander:
    """The job, submitted as in docs/lake-clusters.md, to a standalone cluster that lives in the driver but for its executors."""
    listed = ",".join(map(str, sorted(jars("spark").glob("*.jar"))))
    launcher = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local-cluster[2,1,640]", "--jars", listed,
        "--driver-java-options", "-XX:-DontCompileHugeMethods", "--conf", "spark.executor.memory=512m",
        headrace_lake.__main__.__file__,
    ]  # fmt: skip
    return bench.start(launcher=launcher, variables=NO_PYTHON, jars=None, master=None, **options)


def executors(job: Lander) -> list[psutil.Process]:
    return [each for each in below(job.pid) if any("ExecutorBackend" in word for word in command(each))]


def test_an_executor_and_the_driver_are_killed(bench: Bench) -> None:
    bench.send(12_000, resend_every=100)
    job = submitted(bench)
    job.until(lambda: len(executors(job)) == 2, "an executor on each worker")
    batch = bench.await_files(job)
    kill(executors(job)[0].pid)  # most likely before the driver commits what its executors write
    while job.next("landed")["batch"] < batch:
        pass
    job.next("events written")
    job.kill()
    last = submitted(bench, once=True, batch_records=100_000)
    assert last.wait() == 0, last.tail()
    bench.check()
