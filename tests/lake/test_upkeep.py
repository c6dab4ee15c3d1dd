"""What the job reports to Prometheus, to Kafka and on a terminal while it lands from a real broker."""

from __future__ import annotations

import asyncio
import shutil

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import TopicPartition
from headrace_lake.kafka import source
from headrace_lake.kafka.source import Brokers
from headrace_lake.upkeep import group_reporter
from headrace_lake.upkeep.group_reporter import GroupReporter
from headrace_lake.upkeep.merging import choice
from headrace_lake.upkeep.metrics import LakeMetrics

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
    monkeypatch.setattr(source, "_ANSWER_TIME", 120)  # a broker's first commit makes a topic
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
    assert len([path for path in runs.checkpoint.glob("*/offsets/*") if path.name.isdigit()]) <= 7

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


@pytest.mark.kafka
@pytest.mark.spark
def test_the_lag_and_the_margin_are_those_of_kafka(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_reporter, "_EVERY", 0.0)
    runs.send(400)
    topic = runs.kafka.events_topic
    brokers = Brokers(runs.spark, runs.kafka)
    reporter = GroupReporter(brokers, group="", metrics=runs.metrics, log=runs.log())
    reporter.landed({**dict.fromkeys(((topic, number) for number in range(3)), 10), (topic, 3): 100})

    def said(name: str) -> list[float]:
        reporter.run_due()
        return [value(runs.metrics, name, topic=topic, partition=str(number)) for number in range(4)]

    assert said("lag_offsets") == [90, 90, 90, 0]
    assert said("retention_margin_offsets") == [10, 10, 10, 100]
    runs.delete_records({0: 50})  # retention has overtaken partition 0
    assert said("retention_margin_offsets") == [0, 10, 10, 100]
    asyncio.run(leave_open(runs, 3))
    assert said("lag_offsets") == [90, 90, 90, 1]
    brokers.close()


async def leave_open(runs: Runs, partition: int) -> None:
    """Sends a record in a transaction that nobody ends: the job waits at it, and no reader of committed records knows."""
    producer = AIOKafkaProducer(bootstrap_servers=runs.kafka.bootstrap_servers, transactional_id="left", acks="all")
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait(runs.kafka.events_topic, b"x", partition=partition)
    await producer.stop()
