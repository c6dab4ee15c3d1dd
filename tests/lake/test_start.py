"""Where a run begins, and what it waits for: the job on a real broker, in this process to save the start of a JVM."""

from __future__ import annotations

import shutil
import time

import pytest
from aiokafka.admin import NewPartitions, NewTopic
from headrace_common.operations.settings import KafkaSettings
from headrace_lake.configuration.settings import LakeSettings
from headrace_lake.kafka import source

from tests.lake.runs import Running, Runs

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_it_goes_on_behind_batches_without_a_checkpoint(runs: Runs) -> None:
    runs.send(800)
    runs.run(batch_records=300)
    more = {runs.kafka.quarantine_topic: NewPartitions(5)}
    runs.admin(lambda admin: admin.create_partitions(more))
    shutil.rmtree(runs.checkpoint)
    runs.send(400, mark="b")
    runs.run()
    runs.check()
    runs.metrics.last_landed.set(0)
    runs.run()  # nothing new
    runs.check()
    assert runs.metrics.last_landed._value.get() > 1.7e9
    assert [row["epoch"] for row in runs.query("select distinct epoch from batches order by epoch")] == [1, 2]
    assert len([path for path in runs.checkpoint.iterdir() if path.is_dir()]) == 1, "older ones are deleted"


def test_it_waits_for_topics_with_one_line_then_for_enough_records_and_stops_when_asked(
    runs: Runs, topics: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch costs the same whatever is in it. In two seconds the job looks several times, and lands what does not wait."""
    monkeypatch.setattr(LakeSettings, "least_records", 1000)
    missing = topics.model_copy(update={"quarantine_topic": f"{topics.quarantine_topic}.late"})
    job = Running(runs, kafka=missing, delay=3600)
    job.next("waiting")
    runs.admin(lambda admin: admin.create_topics([NewTopic(missing.quarantine_topic, 3, 1)]))
    job.next("landing")
    assert [line["reason"] for line in runs.said("waiting")] == [f"there is no topic {missing.quarantine_topic}"]
    runs.kafka = missing

    def batches() -> list[int]:
        return [row["records"] for row in runs.query("select records from batches where records > 0 order by batch")]

    runs.send(400, "first")
    job.wait(lambda: not batches())  # the first batch waits for nothing
    time.sleep(2)
    before = len(batches())
    runs.send(400, "few")
    time.sleep(2)
    assert len(batches()) == before
    runs.send(2000, "more")
    job.wait(lambda: sum(batches()) <= 1000)
    job.stop()
    runs.run()  # lands what is left, and ends
    runs.check()
    assert source.delay_options(3.5, 7) == {"minOffsetsPerTrigger": "7", "maxTriggerDelay": "3500ms"}
