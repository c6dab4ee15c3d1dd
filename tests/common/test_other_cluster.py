"""Another Kafka at the address of the one before: a volume was lost, or a development stack made again."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from headrace_common.kafka.client import make_producer
from headrace_common.kafka.cluster import AnotherClusterError, keep_to_one
from headrace_common.kafka.record_batch import builder_of
from headrace_common.operations.settings import KafkaSettings, TopicSettings
from headrace_common.topics import ensure

from tests.common.kafkaless import event
from tests.contract.embedded import EmbeddedKafka
from tests.contract.topic import since


@asynccontextmanager
async def producing(settings: KafkaSettings) -> AsyncIterator[AIOKafkaProducer]:
    producer = make_producer(settings, 1 << 20)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def send(producer: AIOKafkaProducer, settings: KafkaSettings, number: int) -> None:
    batch = builder_of([(event(number), time.time_ns() // 1_000_000)])
    await (await producer.send_batch(batch, settings.events_topic, partition=0))


@pytest.mark.long
async def test_what_it_confirms_it_has(tmp_path: Path) -> None:
    """Two producers had one number there, and it took a batch of the second for one of the first: confirmed, and not stored."""
    first = EmbeddedKafka(tmp_path / "first")
    first.start()
    settings = KafkaSettings(bootstrap_servers=first.bootstrap)
    topics = TopicSettings(events_partitions=1, segments_partitions=0)
    await ensure(settings, topics)
    async with producing(settings) as old:
        await send(old, settings, 0)
        first.stop()
        second = EmbeddedKafka(tmp_path / "second", first.port, first.controller_port)
        second.start()
        try:
            await ensure(settings, topics)
            async with producing(settings) as young:
                assert young._txn_manager.producer_id == old._txn_manager.producer_id
                await send(young, settings, 1)
                with pytest.raises(AnotherClusterError):
                    await send(old, settings, 2)
                await send(young, settings, 3)
            found, _ = await since(settings, settings.events_topic, {})
            assert [int(record.json) for record in found] == [1, 3]
        finally:
            second.stop()


class Connection:
    def __init__(self, cluster: str | Exception) -> None:
        self.cluster = cluster
        self.asked = self.closed = 0

    async def send(self, request: Any) -> SimpleNamespace:
        self.asked += 1
        if isinstance(self.cluster, Exception):
            raise self.cluster
        return SimpleNamespace(cluster_id=self.cluster)

    def close(self) -> None:
        self.closed += 1


async def test_each_connection_is_asked_once() -> None:
    failed: list[Exception] = []
    connections = [Connection("a"), Connection(KafkaConnectionError()), Connection("a"), Connection("b")]
    there = connections[:1]

    async def connect(node: int) -> Connection:
        return there[0]

    client = SimpleNamespace(_get_conn=connect)
    keep_to_one(SimpleNamespace(client=client, _message_accumulator=SimpleNamespace(fail_all=failed.append)))
    found = []
    for there[0] in connections:
        found += [await client._get_conn(1), await client._get_conn(1)]
    assert found == [connections[0]] * 2 + [None] * 2 + [connections[2]] * 2 + [None] * 2
    assert [each.asked for each in connections] == [1, 2, 1, 2]
    assert [each.closed for each in connections] == [0, 2, 0, 2]
    assert [type(error) for error in failed] == [AnotherClusterError] * 2


async def test_aiokafka_still_has_what_is_replaced() -> None:
    producer = make_producer(KafkaSettings(bootstrap_servers="127.0.0.1:1"), 1 << 20)
    assert callable(AIOKafkaProducer.__init__)
    assert type(producer.client)._get_conn.__name__ == "_get_conn"
    assert producer._sender.client is producer.client
    await producer.stop()
