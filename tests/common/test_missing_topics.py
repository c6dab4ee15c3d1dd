"""Brokers that make each topic that a client asks for: `auto.create.topics.enable`, which is on by default."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import UnknownTopicOrPartitionError
from aiokafka.structs import TopicPartition
from headrace_common.kafka.client import describe, make_consumer, make_producer, start_at
from headrace_common.operations.errors import DeliveryError
from headrace_common.operations.settings import KafkaSettings

from tests.contract.embedded import EmbeddedKafka


@pytest.mark.long
async def test_no_client_makes_a_topic(tmp_path: Path) -> None:
    """A misspelt name was a topic at once, into which events were acknowledged, with one replica; nobody landed them."""
    with EmbeddedKafka(tmp_path / "kafka", properties={"auto.create.topics.enable": "true"}) as kafka:
        settings = KafkaSettings(bootstrap_servers=kafka.bootstrap, request_timeout=2, ack_deadline=3)
        with pytest.raises(DeliveryError, match=r"topic headrace\.events is missing"):
            await describe(settings)
        producer = make_producer(settings, 1 << 20)
        await producer.start()
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.partitions_for("headrace.misspelt")
        await producer.stop()
        with pytest.raises(UnknownTopicOrPartitionError):
            await start_at(make_consumer(settings), TopicPartition("headrace.asked", 0))
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
        await admin.start()
        assert await admin.list_topics() == []
        await admin.close()
