"""No cluster takes a batch of one producer for a batch of another, or confirms what it does not have. On a real Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition
from headrace_cli.machine.ports import free_port
from headrace_cli.stack.broker import HOST
from headrace_common.kafka import producer as module
from headrace_common.kafka.client import consuming
from headrace_common.kafka.producer import EPOCHS, LARGEST_SEQUENCE, Producer
from headrace_common.kafka.record_batch import builder_of
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy
from headrace_common.operations.settings import KafkaSettings, TopicSettings
from headrace_common.topics import ensure

from tests.common.kafkaless import Kafka, event
from tests.contract.embedded import EmbeddedKafka
from tests.contract.topic import own_topics, since
from tests.contract.waiting import PATIENCE, there

TOPICS = TopicSettings(events_partitions=1, segments_partitions=0)


@asynccontextmanager
async def producing(settings: KafkaSettings) -> AsyncIterator[Producer]:
    producer = Producer(settings)
    await producer.open((settings.events_topic,))
    try:
        yield producer
    finally:
        await producer.close()


async def send(producer: Producer, settings: KafkaSettings, *numbers: int, size: int = 10) -> None:
    batch = builder_of([(event(number, size), time.time_ns() // 1_000_000) for number in numbers])
    deadline = asyncio.get_running_loop().time() + PATIENCE
    await producer.store(TopicPartition(settings.events_topic, 0), batch, deadline)


async def numbers_in(settings: KafkaSettings) -> list[int]:
    found, _ = await since(settings, settings.events_topic, {})
    return [int(record.json) for record in found]


@pytest.mark.long
@pytest.mark.parametrize("epochs", [(5, 9), (9, 5)], ids=["lower", "higher"])
async def test_a_new_cluster_has_what_it_confirms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epochs: tuple[int, int]
) -> None:
    """Two producers had one number there, and it took a batch of the second for one of the first: confirmed, and not stored."""
    drawn = [*epochs, 7]
    monkeypatch.setattr(module, "randbelow", lambda most: drawn.pop(0))
    with EmbeddedKafka(tmp_path / "first") as first:
        settings = KafkaSettings(bootstrap_servers=first.bootstrap)
        where = TopicPartition(settings.events_topic, 0)
        await ensure(settings, TOPICS)
        async with producing(settings) as old:
            await send(old, settings, 0)
            first.stop()
            with EmbeddedKafka(tmp_path / "second", first.port, first.controller_port):
                await ensure(settings, TOPICS)
                async with producing(settings) as young:
                    await send(young, settings, 1)
                    assert there(young._sequences[where].identity)[0] == there(old._sequences[where].identity)[0]
                    await send(young, settings, 2)
                    with pytest.raises(DeliveryError) as caught:
                        await send(old, settings, 3)
                    assert (caught.value.policy, caught.value.in_doubt) == (DeliveryPolicy.RETRY, False)
                    await send(old, settings, 3)
                    await send(young, settings, 4)
                assert await numbers_in(settings) == [1, 2, 3, 4]


@pytest.mark.kafka
async def test_behind_the_largest_number_comes_0(kafka: EmbeddedKafka) -> None:
    settings = own_topics(kafka.bootstrap, TOPICS)
    async with producing(settings) as producer:
        where = TopicPartition(settings.events_topic, 0)
        sequence = producer._sequences[where]
        async with asyncio.timeout(PATIENCE):
            while sequence.identity is None:
                with contextlib.suppress(KafkaError):  # a broker that has just begun has none to give
                    sequence.identity, sequence.next = await producer.identify(), LARGEST_SEQUENCE
        await send(producer, settings, 0, 1, 2)
        assert sequence.next == 2
        await send(producer, settings, 3)
    assert await numbers_in(settings) == [0, 1, 2, 3]


async def test_batches_for_one_broker_share_a_request() -> None:
    broker, settings = Kafka(), KafkaSettings()
    producer = Producer(settings)
    producer._client = broker.make_client(settings)

    async def one(partition: int) -> None:
        await producer.store(TopicPartition("t", partition), builder_of([(event(partition), 1)]), 1e9)

    await asyncio.gather(*map(one, range(8)))
    await asyncio.gather(*map(one, range(8)))
    assert broker.requests == 2
    assert len({(sent.producer, sent.epoch) for sent in broker.sent}) == 8
    assert {sent.epoch for sent in broker.sent} <= set(range(EPOCHS))


async def test_a_start_that_never_ends_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    client = AsyncMock(bootstrap=asyncio.Event().wait)
    monkeypatch.setattr(module, "make_client", lambda settings: client)
    with pytest.raises(DeliveryError) as caught:
        await Producer(KafkaSettings(request_timeout=1)).open(("t",))
    assert caught.value.policy is DeliveryPolicy.RETRY


@pytest.mark.long
async def test_clients_that_were_connected_find_it(tmp_path: Path) -> None:
    """They asked for it at the old addresses for ever: a segment service read nothing more, nor did `tap`."""
    with EmbeddedKafka(tmp_path / "kafka") as before:
        elsewhere = free_port()
        both = f"{before.bootstrap},{HOST}:{elsewhere}"
        settings = KafkaSettings(bootstrap_servers=both, request_timeout=2, ack_deadline=30)
        await ensure(settings, TopicSettings(events_partitions=1, segments_partitions=0))
        where = TopicPartition(settings.events_topic, 0)
        async with consuming(settings, [where]) as consumer, producing(settings) as producer:
            before.stop()
            batch = builder_of([(event(0), time.time_ns() // 1_000_000)])
            deadline = asyncio.get_running_loop().time() + PATIENCE
            stored = asyncio.create_task(producer.store(where, batch, deadline))
            with EmbeddedKafka(before.folder, elsewhere, before.controller_port):
                async with asyncio.timeout(PATIENCE):
                    await stored
                    end = 0
                    while not end:
                        with contextlib.suppress(KafkaError):
                            end = (await consumer.end_offsets([where]))[where]
