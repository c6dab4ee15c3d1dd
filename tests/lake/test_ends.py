"""The ends of a job: told to stop before Spark runs, no JVM outlives its driver, and names without an address are waited for."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from headrace_cli.machine.jars import jars
from headrace_common.operations.settings import KafkaSettings, environment
from headrace_common.operations.tasks import stops
from headrace_lake import job
from headrace_lake.spark.halt import HaltError

from tests.contract.receiver import variables
from tests.contract.waiting import PATIENCE, there, wait_for
from tests.lake.lander import with_spark
from tests.lake.runs import Runs

DRIVER = """
import os, sys
from headrace_common.operations.settings import LogSettings
from headrace_lake.configuration.settings import LakeSettings
from headrace_lake.spark import engine
from headrace_lake.spark.jvm import java_class
from pyspark import SparkContext

engine.HOOKS_MS = 100
with engine.running(LakeSettings(jars=sys.argv[1], master="local[1]"), LogSettings()) as spark:
    compiler = java_class(spark, "org.codehaus.janino.SimpleCompiler")()
    compiler.cook("public class Hook extends Thread { public void run() { while (true) Thread.yield(); } }")
    hook = compiler.getClassLoader().loadClass("Hook").getConstructor(None).newInstance(None)
    java_class(spark, "java.lang.Runtime").getRuntime().addShutdownHook(hook)
    print(SparkContext._gateway.proc.pid, flush=True)
    sys.stdin.read()
    raise RuntimeError("the job fails")
"""
"""A driver whose JVM has a hook that never ends."""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "XZ"
    except FileNotFoundError:
        return False


@pytest.mark.spark
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("end", ["raises", pytest.param("killed", marks=pytest.mark.full)])
def test_no_jvm_outlives_its_driver_though_a_hook_never_ends(end: str) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(jars("spark"))], env=with_spark(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    jvm = 0
    try:
        jvm = int(there(driver.stdout).readline())
        assert alive(jvm)
        if end == "killed":
            driver.kill()
            driver.wait()
        else:
            there(driver.stdin).close()
            assert driver.wait() == 1
        wait_for(lambda: not alive(jvm), "the JVM ends")
    finally:
        driver.kill()
        if jvm and alive(jvm):
            os.kill(jvm, signal.SIGKILL)


@pytest.mark.kafka
@pytest.mark.spark
def test_brokers_whose_names_have_no_address_yet_are_waited_for_and_named_once(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "_ONCE_WAIT", 2.5)  # of a clock that goes on by one whenever it is asked
    monkeypatch.setattr(job, "_RETRY", 0.0)
    monkeypatch.setattr(job, "time", SimpleNamespace(monotonic=partial(next, itertools.count())))
    with pytest.raises(HaltError, match=r"no name in KAFKA__BOOTSTRAP_SERVERS \(kafka\.invalid:9092\) has an address"):
        runs.run(kafka=KafkaSettings(bootstrap_servers="kafka.invalid:9092"))
    assert len(runs.said("waiting")) == 1


@pytest.mark.parametrize(
    "number",
    [pytest.param(each, marks=() if each is signal.SIGTERM else pytest.mark.long) for each in stops()],
    ids=lambda number: number.name,
)
def test_it_ends_with_0_while_spark_starts(tmp_path: Path, number: signal.Signals) -> None:
    java = tmp_path / "bin" / "java"  # a JVM that never comes up, and ends as one does: with its input
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexec cat\n")
    java.chmod(0o755)
    log = tmp_path / "log"
    places = environment("lake", path=tmp_path / "lake", checkpoint=tmp_path / "checkpoint")
    given = {**variables(KafkaSettings(bootstrap_servers="127.0.0.1:1")), **places, "JAVA_HOME": str(tmp_path)}
    with log.open("wb") as output:
        job = subprocess.Popen([sys.executable, "-m", "headrace_lake"], env=given, stdout=output, stderr=output)
    try:
        wait_for(lambda: any('"starting"' in line for line in log.read_text().splitlines()), "it starts")
        job.send_signal(number)
        assert job.wait(PATIENCE) == 0, log.read_text()
    finally:
        job.kill()
    said = [json.loads(line)["event"] for line in log.read_text().splitlines() if line.startswith("{")]
    assert said == ["starting"], log.read_text()
