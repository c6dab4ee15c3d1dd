"""A Kafka whose brokers have all got other addresses: those that KAFKA__BOOTSTRAP_SERVERS names lead there."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import pytest
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition
from headrace_cli.machine.ports import free_port
from headrace_cli.stack.broker import HOST
from headrace_common.kafka.client import make_consumer, start_at
from headrace_common.kafka.producer import Producer
from headrace_common.kafka.record_batch import builder_of
from headrace_common.operations.settings import KafkaSettings, TopicSettings
from headrace_common.topics import ensure

from tests.common.kafkaless import event
from tests.contract.embedded import EmbeddedKafka
from tests.contract.waiting import PATIENCE


@pytest.mark.long
async def test_clients_that_were_connected_find_it(tmp_path: Path) -> None:
    """They asked for it at the old addresses for ever: a segment service read nothing more, nor did `tap`."""
    with EmbeddedKafka(tmp_path / "kafka") as before:
        elsewhere = free_port()
        both = f"{before.bootstrap},{HOST}:{elsewhere}"
        settings = KafkaSettings(bootstrap_servers=both, request_timeout=2, ack_deadline=30)
        await ensure(settings, TopicSettings(events_partitions=1, segments_partitions=0))
        where = TopicPartition(settings.events_topic, 0)
        consumer, producer = make_consumer(settings), Producer(settings)
        await start_at(consumer, where)
        await producer.open((settings.events_topic,))
        before.stop()
        batch = builder_of([(event(0), time.time_ns() // 1_000_000)])
        stored = asyncio.create_task(producer.store(where, batch, asyncio.get_running_loop().time() + PATIENCE))
        try:
            with EmbeddedKafka(before.folder, elsewhere, before.controller_port):
                async with asyncio.timeout(PATIENCE):
                    await stored
                    end = 0
                    while not end:
                        with contextlib.suppress(KafkaError):
                            end = (await consumer.end_offsets([where]))[where]
        finally:
            await consumer.stop()
            await producer.close()
