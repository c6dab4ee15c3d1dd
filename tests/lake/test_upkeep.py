"""What the job reports to Prometheus, to Kafka and on a terminal while it lands from a real broker."""

from __future__ import annotations

import asyncio
import io
import logging
import shutil
import time
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import TopicPartition
from headrace_common.operations.settings import KafkaSettings, TopicSettings
from headrace_lake.upkeep import group_reporter
from headrace_lake.upkeep.group_reporter import GroupReporter
from headrace_lake.upkeep.merging import choice
from headrace_lake.upkeep.metrics import LakeMetrics
from headrace_lake.upkeep.progress import RunProgress
from pyspark.sql import SparkSession
from structlog.testing import CapturingLogger

from tests.contract.waiting import before, wait_for
from tests.lake.runs import Runs
from tests.tiers import sized

MANY = sized(12, 12, 30)
"""Batches."""


def value(metrics: LakeMetrics, name: str, **labels: str) -> float:
    found = metrics.registry.get_sample_value(f"headrace_lake_{name}", labels)
    return -1 if found is None else found


def committed(runs: Runs, group: str) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}

    async def ask(client: AIOKafkaAdminClient) -> None:
        offsets = await client.list_consumer_group_offsets(group)
        found.update((at, each.offset) for at, each in offsets.items())

    runs.admin(ask)
    return found


@pytest.mark.kafka
@pytest.mark.spark
def test_many_small_batches_leave_few_files(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same run also shows the group's offsets, the metrics, and few files in the checkpoint."""
    monkeypatch.setattr(group_reporter, "_ANSWER_TIME", 120)  # a broker's first commit makes a topic
    monkeypatch.setattr(choice, "MOST_SMALL", MANY // 2)
    monkeypatch.setattr(choice, "_FAN", 2)
    shutil.rmtree(runs.lake)
    runs.send(40 * MANY)
    group = f"group-of-{runs.kafka.events_topic}"
    runs.spark.conf.set("spark.sql.streaming.minBatchesToRetain", "5")
    try:
        runs.run(batch_records=40, group=group, maintenance_share=0.9)
    finally:
        runs.spark.conf.unset("spark.sql.streaming.minBatchesToRetain")
    runs.check()
    batches = value(runs.metrics, "batches_total")
    assert batches >= MANY

    for table, each in (("events", 4), ("batches", 1)):  # files of a batch, at most
        assert 0 < value(runs.metrics, "files", table=table) < each * batches / 2, f"a merge takes {MANY // 2} of them"
    assert value(runs.metrics, "maintenance_runs_total", task="compact") > 0
    assert value(runs.metrics, "maintenance_failures_total", task="compact") == 0
    assert len([path for path in (runs.checkpoint / "offsets").iterdir() if path.name.isdigit()]) <= 7

    ends: dict[TopicPartition, int] = {}
    for topic, partition, offset in (*runs.sent.events, *runs.sent.quarantined):
        at = TopicPartition(topic, partition)
        ends[at] = max(ends.get(at, 0), offset + 1)
    assert committed(runs, group) == ends
    assert value(runs.metrics, "group_commit_failures_total") == 0

    for at in ends:
        assert value(runs.metrics, "lag_offsets", topic=at.topic, partition=str(at.partition)) == 0
    assert value(runs.metrics, "freshness_seconds_count") == len(runs.sent.events)
    p50, p95 = (value(runs.metrics, "freshness_last_seconds", quantile=share) for share in ("0.5", "0.95"))
    assert 0 < p50 <= p95
    assert value(runs.metrics, "step_seconds", step="addBatch") > 0
    left = [line["left"] for line in runs.said("landed")]
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0


@pytest.mark.kafka
@pytest.mark.spark
def test_the_margin_is_the_oldest_records_time_plus_the_retention(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_reporter, "_LOOK", 0.0)
    monkeypatch.setattr(group_reporter, "_LAG", 0.0)
    began = time.time()
    runs.send(400)
    topic, log = runs.kafka.events_topic, runs.log()
    reporter = GroupReporter(runs.spark, runs.kafka, group="", metrics=runs.metrics, log=log)
    retention = TopicSettings().events_retention
    reporter.landed({**dict.fromkeys(((topic, number) for number in range(3)), 10), (topic, 3): 100})

    def said(name: str, partition: int) -> float:
        return value(runs.metrics, name, topic=topic, partition=str(partition))

    def margin(partition: int) -> float:
        return said("retention_margin_seconds", partition)

    def look(seen: Callable[[], bool]) -> None:
        """A record that does not come within a second is left to the next look."""
        wait_for(before(reporter.run_due, seen), "the margins are measured")

    assert said("lag_offsets", 0) == -1, "nobody has asked Kafka yet"
    look(lambda: min(map(margin, range(4))) >= 0)
    assert [said("lag_offsets", number) for number in range(4)] == [90, 90, 90, 0]
    assert retention - (time.time() - began) - 1 <= margin(0) < retention, "sent since the test began"
    assert margin(3) == retention, "all is landed"
    assert said("retention_margin_offsets", 0) == 10

    runs.delete_records({0: 50})  # retention has overtaken partition 0
    week = retention * 0.95
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + week)
    look(lambda: margin(0) == 0 and margin(1) < retention / 2)
    assert said("retention_margin_offsets", 0) == 0
    assert retention * 0.04 < margin(1) < retention * 0.05
    assert len(runs.said("retention is about to overtake the job")) == 1, "one line in ten minutes"

    asyncio.run(leave_open(runs, 3))
    look(lambda: said("lag_offsets", 3) == 1)
    reporter.finish()


async def leave_open(runs: Runs, partition: int) -> None:
    """Sends a record in a transaction that nobody ends: the job waits at it, and no reader of committed records knows."""
    producer = AIOKafkaProducer(bootstrap_servers=runs.kafka.bootstrap_servers, transactional_id="left", acks="all")
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait(runs.kafka.events_topic, b"x", partition=partition)
    await producer.stop()


@pytest.mark.kafka
@pytest.mark.spark
def test_a_group_that_cannot_be_committed_is_said_once_and_stops_nothing(
    spark: SparkSession, topics: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_reporter, "_ANSWER_TIME", 1)
    away = topics.model_copy(update={"bootstrap_servers": "127.0.0.1:1"})
    metrics, log = LakeMetrics(), CapturingLogger()
    reporter = GroupReporter(spark, away, group="g", metrics=metrics, log=log)  # type: ignore[arg-type]
    reporter.landed({(topics.events_topic, 0): 5})
    reporter.run_due()
    reporter._next.clear()
    reporter.run_due()
    assert value(metrics, "group_commit_failures_total") == 2
    said = [call.kwargs["what"] for call in log.calls if call.args == ("reporting failed",)]
    assert said == ["committing the group's offsets", "measuring the lag", "reading the topics' retention"]
    reporter.finish()


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_line_and_log_lines_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    handler = logging.StreamHandler()
    logger = logging.getLogger()
    logger.addHandler(handler)
    try:
        with RunProgress({("t", 0): 10, ("t", 1): 0}, {("t", 0): 110, ("t", 1): 1000, ("u", 0): 7}) as progress:
            assert progress.total == 1100
            progress.landed({("t", 0): 60})
            logger.warning("a line of the log")
            progress.landed({("t", 0): 110, ("t", 1): 400})
        assert handler.stream is screen, "as before"
    finally:
        logger.removeHandler(handler)
    assert progress.left == 600
    assert "500 / 1,100 records" in screen.getvalue()
    assert "a line of the log\n" in screen.getvalue()


def test_elsewhere_there_is_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    with RunProgress({("t", 0): 0}, {("t", 0): 5}) as progress:
        progress.landed({("t", 0): 9})
    assert (progress.left, screen.getvalue()) == (0, "")
