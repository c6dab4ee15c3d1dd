"""The topics that the topics job makes, and what receivers find wrong with those that are there."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAuthorizationFailedError, UnknownTopicOrPartitionError
from aiokafka.structs import TopicPartition
from headrace_common.kafka import client
from headrace_common.kafka.client import Topic, consuming, describe
from headrace_common.kafka.producer import Producer
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import SMALLEST_MESSAGE_BYTES, KafkaSettings, TopicSettings
from headrace_common.publishing import delivery
from headrace_common.topics import ensure

from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import variables
from tests.contract.topic import unmade
from tests.contract.waiting import PATIENCE
from tests.system.cluster import admin

DAY_MS = 86_400_000


@pytest.fixture
def settings(kafka: EmbeddedKafka) -> KafkaSettings:
    """Names of topics that are not there yet."""
    return unmade(kafka.bootstrap)


async def seen(settings: KafkaSettings, topic: str) -> tuple[int, dict[str, str]]:
    """Partitions and configuration of a topic, as the broker tells them."""
    async with admin(settings) as asked:
        (described,) = await asked.describe_topics([topic])
        (response,) = await asked.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        return len(described["partitions"]), {entry[0]: entry[1] for entry in response.resources[0][4]}


@pytest.mark.kafka
class TestEnsure:
    async def test_makes_topics_as_the_promise_needs_them_and_changes_none(self, settings: KafkaSettings) -> None:
        large = TopicSettings(events_partitions=5, events_retention=10 * 86_400, max_message_bytes=8 << 20)
        assert len(await ensure(settings, large)) == 3
        other = TopicSettings(events_partitions=9, retention_bytes=1)
        assert await ensure(settings, other) == []
        records = {
            "cleanup.policy": "delete",
            "max.message.bytes": str(8 << 20),
            "retention.bytes": "-1",
            "message.timestamp.type": "CreateTime",
            "message.timestamp.before.max.ms": str(DAY_MS),
            "message.timestamp.after.max.ms": "3600000",
            "unclean.leader.election.enable": "false",
        }
        segments = {"cleanup.policy": "delete", "retention.ms": "-1", "message.timestamp.type": "LogAppendTime"}
        for topic, partitions, promised in (
            (settings.events_topic, 5, {**records, "retention.ms": str(10 * DAY_MS)}),
            (settings.quarantine_topic, 3, {**records, "retention.ms": str(30 * DAY_MS)}),
            (settings.segments_topic, 1, segments),
        ):
            has, entries = await seen(settings, topic)
            assert (has, {name: entries[name] for name in promised}) == (partitions, promised)

    async def test_gives_up_after_the_bound(self, settings: KafkaSettings) -> None:
        with pytest.raises(DeliveryError, match="replication factor of 3"):
            await ensure(settings, TopicSettings(replication=3), bound=1)
        with pytest.raises(DeliveryError, match=r"Kafka at 127.0.0.1:1 did not do it within 1 s") as caught:
            await ensure(KafkaSettings(bootstrap_servers="127.0.0.1:1"), TopicSettings(), bound=1)
        assert caught.value.policy is DeliveryPolicy.RETRY

    def test_as_a_process(self, settings: KafkaSettings) -> None:
        command = [sys.executable, "-m", "headrace_common.topics"]
        for name, status, said in (("replication", 0, "created, 12 partitions"), ("replicas", 78, "no such setting")):
            environment = variables(settings, {"topics": {name: 1}})
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
            assert (done.returncode, said in done.stderr) == (status, True), done.stderr


ONE_IN_SYNC = "min.insync.replicas below 2"


@pytest.mark.parametrize(
    ("told", "weak"),
    [
        ({"cleanup.policy": "compact,delete"}, ["cleanup.policy is compact,delete and must be delete"]),
        (
            {"message.timestamp.type": "LogAppendTime"},
            ["message.timestamp.type is LogAppendTime and must be CreateTime"],
        ),
        ({"message.timestamp.type": "CreateTime"}, []),
        ({"min.insync.replicas": "2"}, []),
        ({"min.insync.replicas": "1"}, [ONE_IN_SYNC]),
        ({"max.message.bytes": str(SMALLEST_MESSAGE_BYTES - 1)}, ["max.message.bytes below 65536"]),
        ({"max.message.bytes": str(SMALLEST_MESSAGE_BYTES)}, []),
        # other brokers than Kafka name a setting without its value
        (dict.fromkeys(("min.insync.replicas", "max.message.bytes", "unclean.leader.election.enable")), []),
        # who made a topic again that we may not see heard that it was there, and looked no further
        (UnknownTopicOrPartitionError, r"topic headrace\.events.+is missing"),
        (TopicAuthorizationFailedError, r"topic headrace\.events.+does not let us see it"),
    ],
)
async def test_what_does_not_keep_the_promise_is_named(
    monkeypatch: pytest.MonkeyPatch, told: Any, weak: list[str] | str
) -> None:
    """A service's own topics may have keys, and the broker's time."""
    error = 0 if isinstance(told, dict) else told.errno
    entries = [] if error else [(name, value, False, 5) for name, value in told.items()]
    partitions = [] if error else [{"replicas": [1, 2, 3], "leader": 1}]
    asked = AsyncMock()
    asked.describe_cluster.return_value = {"brokers": [1, 2, 3]}
    asked.describe_configs.return_value = [SimpleNamespace(resources=[(0, "", 2, "t", entries)])]
    asked.describe_topics = AsyncMock(
        side_effect=lambda names: [{"topic": name, "error_code": error, "partitions": partitions} for name in names]
    )
    monkeypatch.setattr(client, "AIOKafkaAdminClient", lambda **_: asked)
    with pytest.raises(DeliveryError, match=weak) if isinstance(weak, str) else nullcontext():
        found = [list(topic.weak) for topic in await describe(KafkaSettings(), ["own"])]
        assert found == [weak, weak, [ONE_IN_SYNC] if ONE_IN_SYNC in weak else []]


async def test_topics_whose_settings_may_not_be_read_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Topic("read", 1, 1 << 20, configuration={"cleanup.policy": "delete"})
    monkeypatch.setattr(delivery, "describe", AsyncMock(return_value=(read, Topic("unread", 1, 1 << 20))))
    await delivery.Delivery(KafkaSettings(), ReceiverMetrics(), log := Mock()).refresh()
    log.warning.assert_called_once_with("topic settings not known", right="DESCRIBE_CONFIGS", topics=["unread"])


# Brokers that make each topic that a client asks for: `auto.create.topics.enable`, which is on by default


@pytest.mark.long
async def test_no_client_makes_a_topic(tmp_path: Path) -> None:
    """A misspelt name was a topic at once, into which events were acknowledged, with one replica; nobody landed them."""
    with EmbeddedKafka(tmp_path / "kafka", properties={"auto.create.topics.enable": "true"}) as kafka:
        settings = KafkaSettings(bootstrap_servers=kafka.bootstrap, request_timeout=2, ack_deadline=3)
        with pytest.raises(DeliveryError, match=r"topic headrace\.events is missing"):
            await describe(settings)
        producer = Producer(settings)
        await producer.open(("headrace.misspelt",))
        await producer.close()
        with pytest.raises(UnknownTopicOrPartitionError):
            await consuming(settings, [TopicPartition("headrace.asked", 0)]).__aenter__()
        async with admin(settings) as asked:
            assert await asked.list_topics() == []
