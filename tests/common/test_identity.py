"""Another Kafka at the address of the one before: a volume was lost, a development stack made again, a copy restored."""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import OutOfOrderSequenceNumber, ProducerFenced
from aiokafka.structs import TopicPartition
from headrace_common.kafka import identity
from headrace_common.kafka.client import make_producer
from headrace_common.kafka.identity import EPOCHS, LARGEST, Sequences
from headrace_common.kafka.record_batch import builder_of
from headrace_common.operations.settings import KafkaSettings, TopicSettings
from headrace_common.topics import ensure

from tests.common.kafkaless import event
from tests.contract.embedded import EmbeddedKafka
from tests.contract.topic import own_topics, since

TOPICS = TopicSettings(events_partitions=1, segments_partitions=0)


@asynccontextmanager
async def producing(settings: KafkaSettings) -> AsyncIterator[AIOKafkaProducer]:
    producer = make_producer(settings, 1 << 20)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def send(producer: AIOKafkaProducer, settings: KafkaSettings, *numbers: int) -> None:
    batch = builder_of([(event(number), time.time_ns() // 1_000_000) for number in numbers])
    await (await producer.send_batch(batch, settings.events_topic, partition=0))


async def numbers_in(settings: KafkaSettings) -> list[int]:
    found, _ = await since(settings, settings.events_topic, {})
    return [int(record.json) for record in found]


@pytest.fixture(params=[(5, 9, ProducerFenced), (9, 5, OutOfOrderSequenceNumber)], ids=["lower", "higher"])
def refusal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Exception]:
    """The epoch of the old producer is lower than that of the young one, or higher. How Kafka then refuses the old one."""
    *epochs, error = request.param
    monkeypatch.setattr(identity, "randbelow", lambda most: epochs.pop(0))
    return error


async def what_it_confirms(settings: KafkaSettings, old: AIOKafkaProducer, refusal: type[Exception]) -> None:
    """The cluster of `old`, which has sent one batch, was replaced. Both it and a new producer have the first number there."""
    async with producing(settings) as young:
        await send(young, settings, 1)
        assert young._txn_manager.producer_id == old._txn_manager.producer_id
        await send(young, settings, 2)
        with pytest.raises(refusal):
            await send(old, settings, 3)
        await send(young, settings, 4)
    assert await numbers_in(settings) == [1, 2, 4]


@pytest.mark.long
async def test_a_new_cluster_has_what_it_confirms(tmp_path: Path, refusal: type[Exception]) -> None:
    """Two producers had one number there, and it took a batch of the second for one of the first: confirmed, and not stored."""
    with EmbeddedKafka(tmp_path / "first") as first:
        settings = KafkaSettings(bootstrap_servers=first.bootstrap)
        await ensure(settings, TOPICS)
        async with producing(settings) as old:
            await send(old, settings, 0)
            first.stop()
            with EmbeddedKafka(tmp_path / "second", first.port, first.controller_port):
                await ensure(settings, TOPICS)
                await what_it_confirms(settings, old, refusal)


@pytest.mark.long
async def test_a_restored_cluster_has_what_it_confirms(tmp_path: Path, refusal: type[Exception]) -> None:
    """The same where the cluster has its identity, and its topics theirs: its data is an older copy."""
    with EmbeddedKafka(tmp_path / "kafka") as made:
        settings = KafkaSettings(bootstrap_servers=made.bootstrap)
        await ensure(settings, TOPICS)
    shutil.copytree(made.folder, tmp_path / "copy")
    with EmbeddedKafka(made.folder, made.port, made.controller_port) as kafka:
        async with producing(settings) as old:
            await send(old, settings, 0)
            kafka.stop()
            shutil.rmtree(kafka.folder)
            shutil.copytree(tmp_path / "copy", kafka.folder)
            kafka.start()
            await what_it_confirms(settings, old, refusal)


async def test_behind_the_largest_number_comes_0(kafka: EmbeddedKafka) -> None:
    settings = own_topics(kafka.bootstrap, TOPICS)
    async with producing(settings) as producer:
        where = TopicPartition(settings.events_topic, 0)
        producer._txn_manager._sequence_numbers[where] = LARGEST
        await send(producer, settings, 0, 1, 2)
        assert producer._txn_manager.sequence_number(where) == 2
        await send(producer, settings, 3)
    assert await numbers_in(settings) == [0, 1, 2, 3]


async def test_each_has_an_epoch_of_its_own() -> None:
    """aiokafka still has what is replaced."""
    found = set()
    for _ in range(8):
        producer = make_producer(KafkaSettings(bootstrap_servers="127.0.0.1:1"), 1 << 20)
        manager = producer._txn_manager
        manager.set_pid_and_epoch(7, 0)
        assert manager.producer_id == 7
        found.add(manager.producer_epoch)
        assert isinstance(manager._sequence_numbers, Sequences)
        assert manager.sequence_number(TopicPartition("t", 0)) == 0
        await producer.stop()
    assert len(found) > 1
    assert found <= set(range(EPOCHS))
