"""What the job reports to Prometheus, to Kafka and on a terminal while it lands from a real broker."""

from __future__ import annotations

import shutil

import pytest
from aiokafka.structs import TopicPartition
from headrace_lake.kafka import source
from headrace_lake.kafka.source import Brokers
from headrace_lake.upkeep import group_reporter, maintenance
from headrace_lake.upkeep.group_reporter import GroupReporter
from headrace_lake.upkeep.merging import choice
from headrace_lake.upkeep.metrics import LakeMetrics

from tests.lake.runs import Runs
from tests.tiers import sized

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

MANY = sized(12, 12, 30)
"""Batches."""


def value(metrics: LakeMetrics, name: str, **labels: str) -> float:
    found = metrics.registry.get_sample_value(f"headrace_lake_{name}", labels)
    return -1 if found is None else found


def test_many_small_batches_leave_few_files(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same run also shows the group's offsets."""
    monkeypatch.setattr(source, "_ANSWER_TIME", 120)  # a broker's first commit makes a topic
    monkeypatch.setattr(choice, "MOST_SMALL", MANY // 2)
    monkeypatch.setattr(choice, "_FAN", 2)
    monkeypatch.setattr(maintenance, "rest_after", lambda *_: 0.0)  # so that it ends with all merged that is due
    shutil.rmtree(runs.lake)
    runs.send(40 * MANY)
    group = f"group-of-{runs.kafka.events_topic}"
    runs.run(batch_records=40, group=group, maintenance_share=0.9)
    runs.check()
    assert value(runs.metrics, "batches_total") >= MANY

    for table in ("events", "batches"):
        assert 0 < value(runs.metrics, "files", table=table) < MANY, "fewer than `batches` wrote"
    assert value(runs.metrics, "maintenance_runs_total", task="compact") > 0
    assert value(runs.metrics, "maintenance_failures_total", task="compact") == 0

    ends: dict[TopicPartition, int] = {}
    for topic, partition, offset in sorted((*runs.sent.events, *runs.sent.quarantined)):
        ends[TopicPartition(topic, partition)] = offset + 1
    committed = runs.admin(lambda client: client.list_consumer_group_offsets(group))
    assert {at: each.offset for at, each in committed.items()} == ends
    assert value(runs.metrics, "group_failures_total") == 0

    assert value(runs.metrics, "freshness_seconds_count") == len(runs.sent.events)


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
    runs.send_unread(3, aborts=False)  # the job waits at it
    assert said("lag_offsets") == [90, 90, 90, 1]
    brokers.close()
