"""Where a run begins, and when it refuses: the job on a real broker, in this process to save the start of a JVM."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from headrace_cli.verbs import query
from headrace_common.operations.settings import KafkaSettings
from headrace_lake.spark.halt import HaltError, SupersededError
from headrace_lake.tables.fence import transaction
from headrace_lake.tables.layout import BATCHES

from tests.lake.lander import TIMEOUT, version
from tests.lake.runs import Runs

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_it_resumes_and_starts_from_batches_without_a_checkpoint(runs: Runs) -> None:
    shutil.rmtree(runs.lake)  # the job makes the tables
    runs.send(800)
    runs.run(batch_records=300)
    runs.check()
    runs.send(400, mark="b")
    runs.run()
    runs.check()
    runs.lose_checkpoint()
    runs.send(400, mark="c")
    runs.run()
    runs.check()
    runs.run()  # nothing new
    runs.check()
    epochs = query.run("select epoch, count(distinct batch) as n from batches group by epoch order by epoch", runs.lake)
    assert [row["epoch"] for row in epochs] == [1, 2]
    assert b"headrace_lake_events_total" in runs.metrics.exposition()


def test_new_partitions_are_landed_from_their_first_record(runs: Runs) -> None:
    runs.send(400)
    runs.run()

    async def grow(admin: AIOKafkaAdminClient) -> None:
        await admin.create_partitions({runs.kafka.quarantine_topic: NewPartitions(5)})

    runs.admin(grow)
    runs.send(400, mark="b")
    runs.run()
    runs.check()


def test_an_old_copy_of_the_checkpoint_is_refused(runs: Runs, tmp_path: Path) -> None:
    runs.send(400)
    runs.run()
    shutil.copytree(runs.checkpoint, tmp_path / "copy")
    runs.send(400, mark="b")
    runs.run()
    runs.lose_checkpoint()
    shutil.copytree(tmp_path / "copy", runs.checkpoint)
    runs.send(400, mark="c")
    with pytest.raises(SupersededError, match="an old copy"):
        runs.run()
    runs.lose_checkpoint()
    runs.run()
    runs.check()


def test_a_checkpoint_of_something_else_is_refused(runs: Runs, tmp_path: Path) -> None:
    runs.send(400)
    (runs.checkpoint / "offsets").mkdir(parents=True)
    with pytest.raises(HaltError, match="is the checkpoint of another query"):
        runs.run()
    runs.lose_checkpoint()
    runs.run()

    async def make(admin: AIOKafkaAdminClient) -> None:
        await admin.create_topics([NewTopic(f"{runs.kafka.quarantine_topic}.other", 1, 1)])

    runs.admin(make)
    other = runs.kafka.model_copy(update={"quarantine_topic": f"{runs.kafka.quarantine_topic}.other"})
    with pytest.raises(HaltError, match=f"the checkpoint is for the topics {runs.kafka.events_topic} and"):
        runs.run(kafka=other)
    (runs.lake / BATCHES).rename(tmp_path / "batches.old")
    with pytest.raises(HaltError, match="belongs to other tables"):
        runs.run()


def test_it_waits_for_topics_with_one_line_and_stops_when_asked(runs: Runs, topics: KafkaSettings) -> None:
    missing = topics.model_copy(update={"quarantine_topic": f"{topics.quarantine_topic}.late"})
    job = runs.job(once=False, kafka=missing)
    thread = threading.Thread(target=job.run)
    thread.start()
    waiting = [f"there is no topic {missing.quarantine_topic}"]
    while not (said := runs.said("waiting")):
        time.sleep(0.05)
        assert thread.is_alive()

    async def make(admin: AIOKafkaAdminClient) -> None:
        await admin.create_topics([NewTopic(missing.quarantine_topic, 3, 1)])

    runs.admin(make)
    while not runs.said("landing"):
        time.sleep(0.05)
        assert thread.is_alive()
    assert [line["reason"] for line in said] == waiting
    runs.kafka = missing
    runs.send(400)
    while not runs.said("landed"):
        time.sleep(0.05)
        assert thread.is_alive()
    job.stop()
    thread.join(TIMEOUT)
    assert not thread.is_alive()
    runs.run()
    runs.check()
    assert version(runs.lake, BATCHES) < transaction(2, 0)
