"""The ends of a job: told to stop before Spark runs or in a batch; names without an address are waited for."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from headrace_common.operations.settings import KafkaSettings, environment
from headrace_common.operations.tasks import stops
from headrace_lake import job
from headrace_lake.configuration.settings import LakeProcessSettings, LakeSettings
from headrace_lake.spark.halt import HaltError

from tests.contract.receiver import variables
from tests.contract.waiting import PATIENCE, wait_for
from tests.lake.runs import Runs


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


def test_a_batch_that_does_not_end_does_not_keep_a_job_that_is_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "_STOP_WAIT", 0.0)
    query = Mock(status={"isTriggerActive": True})
    query.awaitTermination.return_value = False  # as while Kafka does not answer
    settings = LakeProcessSettings(kafka=KafkaSettings(), lake=LakeSettings(path="/lake", checkpoint="/checkpoint"))
    ending = job.Job(Mock(), settings, once=False, log=Mock(), health=Mock())
    ending.stop()
    ending._watch(query, Mock(), 1, Mock())
    query.stop.assert_called_once_with()


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
