"""The start of Spark's JVM, and its end, as a process that merely sleeps; the ends of a job; the image's entry point."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from headrace_cli.ground import ROOT
from headrace_common.operations.errors import ConfigError, HeadraceError
from headrace_common.operations.settings import KafkaSettings, LogSettings, environment
from headrace_common.operations.tasks import stops
from headrace_lake import job
from headrace_lake.configuration.settings import LakeProcessSettings, LakeSettings
from headrace_lake.spark import engine
from headrace_lake.spark.halt import HaltError
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.contract.receiver import variables
from tests.contract.waiting import PATIENCE, wait_for
from tests.lake.runs import Runs
from tests.tiers import sized

SETTINGS = LakeSettings(path="/lake", checkpoint="/checkpoint")


@pytest.mark.parametrize(
    ("number", "name", "lost"),
    [
        (signal.SIGKILL, "9 (Killed)", ConnectionRefusedError(111, "Connection refused")),
        (signal.SIGRTMIN + 1, "35 (Real-time signal 1)", Py4JNetworkError("gone")),
    ],
)
def test_a_jvm_that_was_killed_is_named_with_its_signal(
    monkeypatch: pytest.MonkeyPatch, number: int, name: str, lost: Exception
) -> None:
    session = Mock()
    monkeypatch.setattr(engine, "session", session)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
        process.send_signal(number)
        said = rf"^Spark's JVM \(pid {process.pid}\) was ended by signal {re.escape(name)}$"
        with pytest.raises(HeadraceError, match=said), engine.running(SETTINGS, LogSettings()):
            raise lost
    assert not session().stop.called, "there is nobody to stop"


def test_java_loads_libraries_from_a_folder_with_blanks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing in /tmp may be executed, no batch was read: there was no zstd. A checkout in `My files` started no job."""
    mine = tmp_path / "It's mine"
    mine.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(mine))
    own = LakeSettings(spark={"spark.driver.extraJavaOptions": "-Da=1"})
    options = shlex.split(engine.driver_options(own, LogSettings(), mine / "log", once=True))
    assert {f"-Djava.io.tmpdir={mine}", f"-Dlog4j2.configurationFile={mine}/log"} <= set(options)
    assert all(option.startswith("-") for option in options)
    assert options[-1] == "-Da=1", "the user's own come last, and win"


def test_an_unwritable_folder_is_named_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "new" / "lake", tmp_path):
        engine.check_folder("LAKE__PATH", str(path))
        engine.check_folder("LAKE__PATH", path.as_uri())
    engine.check_folder("LAKE__PATH", "s3a://bucket/lake")
    for text in (str(tmp_path / "file" / "lake"), (tmp_path / "file").as_uri()):
        with pytest.raises(ConfigError, match=f"LAKE__PATH .*cannot write to {tmp_path}/file"):
            engine.check_folder("LAKE__PATH", text)
    settings = LakeSettings(path=str(tmp_path / "lake"), checkpoint=str(tmp_path / "file" / "checkpoint"))
    with pytest.raises(ConfigError, match="LAKE__CHECKPOINT"):
        engine.session(settings, LogSettings())


@pytest.mark.spark
def test_without_hard_links_hadoops_own_stay_and_it_says_so(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    places = [str(tmp_path / "lake"), str(tmp_path / "checkpoint")]
    spark._jsc.hadoopConfiguration().set(engine.LOCAL_FILES, "org.apache.hadoop.fs.local.LocalFs")
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        engine._write_local_files(spark, *places)
    said = engine.remarks(spark, places[0])
    engine._write_local_files(spark, *places)
    assert [each.partition(" ")[0] for each in said] == ["LAKE__PATH"]
    assert engine.remarks(spark, places[0]) == []
    assert [*tmp_path.iterdir()] == []


@pytest.mark.kafka
@pytest.mark.spark
def test_brokers_without_address_are_waited_for_and_named_once(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "_ONCE_WAIT", 2.5)  # of a clock that goes on by one whenever it is asked
    monkeypatch.setattr(job, "_RETRY", 0.0)
    monkeypatch.setattr(job, "time", SimpleNamespace(monotonic=partial(next, itertools.count())))
    with pytest.raises(HaltError, match=r"Kafka's client does not start: .*No resolvable bootstrap urls"):
        runs.run(kafka=KafkaSettings(bootstrap_servers="kafka.invalid:9092"))
    assert len(runs.said("waiting")) == 1


def test_a_batch_without_end_keeps_no_job_from_stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "_STOP_WAIT", 0.0)
    query = Mock(status={"isTriggerActive": True})
    query.awaitTermination.return_value = False  # as while Kafka does not answer
    settings = LakeProcessSettings(kafka=KafkaSettings(), lake=SETTINGS)
    ending = job.Job(Mock(), settings, once=False, log=Mock(), health=Mock())
    ending.stop()
    ending._watch(query, Mock(), 1, Mock())
    query.stop.assert_called_once_with()


ENDS = sized([signal.SIGTERM], [signal.SIGTERM], [*stops()])


@pytest.mark.parametrize("number", ENDS, ids=lambda number: number.name)
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


EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://driver:7078", "SPARK_EXECUTOR_ID": "3", "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "spark-1", "SPARK_EXECUTOR_POD_IP": "10.0.0.9", "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "lake-exec-3", "SPARK_EXECUTOR_MEMORY": "1g", "SPARK_CLASSPATH": "/more",
    **{f"SPARK_JAVA_OPT_{number}": f"-Dn={number} x" for number in range(11)},
}  # fmt: skip


def test_the_image_is_the_job_spark_submit_or_an_executor(tmp_path: Path) -> None:
    """By its first argument. Programs in the place of the real ones print their arguments."""
    for name in ("bin/spark-submit", "bin/java", "bin/python"):
        program = tmp_path / name
        program.parent.mkdir(exist_ok=True)
        program.write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$@"\n')
        program.chmod(0o755)
    folder = str(tmp_path)

    def become(*arguments: str, **variables: str) -> list[str]:
        given = {"PATH": f"{folder}/bin:/usr/bin:/bin", "SPARK_HOME": folder, "JAVA_HOME": folder, **variables}
        command = ["/bin/bash", str(ROOT / "spark_jobs" / "entrypoint.sh"), *arguments]
        return subprocess.run(command, env=given, capture_output=True, text=True, check=True).stdout.splitlines()

    for arguments in ([], ["erase", "--where", "a = 'b c'"]):
        assert become(*arguments) == [f"{folder}/bin/python", "-P", "-m", "headrace_lake", *arguments]

    submitted = ["--properties-file", "/opt/spark/conf/spark.properties", "--class", "x", "local:///job.py", "--once"]
    words = become("driver", *submitted, SPARK_DRIVER_BIND_ADDRESS="10.0.0.8")
    assert words[0] == f"{folder}/bin/spark-submit"
    assert words[-len(submitted) - 2 :] == ["--deploy-mode", "client", *submitted]
    assert "spark.driver.bindAddress=10.0.0.8" in words

    words = become("executor", **EXECUTOR)
    assert words[:14] == [f"{folder}/bin/java", *(f"-Dn={number} x" for number in range(11)), "-Xms1g", "-Xmx1g"]
    assert words[words.index("-cp") + 1] == f"{folder}/conf:/more:{folder}/jars/*"
    backend = words.index("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend")
    assert " ".join(words[backend + 1 :]) == (
        "--driver-url spark://driver:7078 --executor-id 3 --cores 2 --app-id spark-1 --hostname 10.0.0.9"
        " --resourceProfileId 0 --podName lake-exec-3"
    )
