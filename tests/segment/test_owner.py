"""The owner of the segments on real Kafka: it is fenced, and another process takes over."""

from __future__ import annotations

import contextlib
import math
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
from aiokafka.errors import InvalidProducerEpoch, KafkaError
from aiokafka.structs import TopicPartition
from headrace_common.kafka.producer import Producer
from headrace_common.kafka.record_batch import BatchBuilder, builder_of
from headrace_common.operations.errors import DeliveryError
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import KafkaSettings
from headrace_common.record.encoding import encode
from headrace_segment.metrics import SegmentMetrics
from headrace_segment.replica.owner import HELD_UP, SILENCE, STANDS_BY, FencedError, Owner
from headrace_segment.settings import SegmentSettings
from headrace_segment.store.records import LAST_EPOCH

from tests.contract.receiver import Receiver, Receivers
from tests.contract.topic import since
from tests.contract.waiting import until
from tests.segment.client import Client, ClosedError, new_writer, serves
from tests.segment.speaking import events as framed

pytestmark = pytest.mark.kafka

HELLO, WORLD = framed(b"hello"), framed(b"world!")


@asynccontextmanager
async def owners(settings: KafkaSettings, *epochs: int) -> AsyncIterator[tuple[Any, int, list[Producer]]]:
    """What stores a record and returns its offset, an id, and producers that have it, with these epochs."""
    where = TopicPartition(settings.segments_topic, 0)
    producers = [Producer(settings) for _ in epochs]
    for each in producers:
        await each.open([where.topic])
    number = -1
    while number < 0:  # a broker that has just started gives no ids yet
        with contextlib.suppress(KafkaError):
            number, _ = await producers[0].identify()

    async def store(producer: Producer, value: bytes) -> int:
        batch = builder_of([(encode(value, []), 1)])
        return (await producer.store(where, batch, math.inf)).offset

    for each, epoch in zip(producers, epochs, strict=True):
        each.adopt(where, number, epoch)
    yield store, number, producers
    for each in producers:
        await each.close()


async def test_an_owner_that_was_held_up_distrusts_its_epoch() -> None:
    """A broker forgets it after a day, if the owner after it has stopped meanwhile, and would store what contradicts the log."""
    runtime: Any = SimpleNamespace(settings=SegmentSettings(), log=structlog.get_logger())
    held_up = Owner(runtime, SegmentMetrics(ReceiverMetrics()))
    held_up.live.set()
    held_up._stored -= HELD_UP
    with pytest.raises(FencedError):
        await held_up._store(cast("Any", None), BatchBuilder())


async def test_kafka_fences_lower_epochs_and_one_of_equal_claims(own_segments: KafkaSettings) -> None:
    async with owners(own_segments, 0, LAST_EPOCH, LAST_EPOCH) as (store, _, (old, new, racing)):
        assert [await store(old, b"claim"), await store(old, b"block")] == [0, 1]
        assert await store(new, b"one") == await store(racing, b"two") == 2
        for _ in range(2):  # and none is stored with another identity
            with pytest.raises(DeliveryError) as refused:
                await store(old, b"late")
            assert isinstance(refused.value.__cause__, InvalidProducerEpoch)
    records, _ = await since(own_segments, own_segments.segments_topic, {})
    assert [each.value for each in records] == [b"claim", b"block", b"one"]


async def _stands_by(service: Receiver) -> bool:
    status, page = await service.get("/readyz")
    return status == 503 and STANDS_BY in page


@pytest.mark.long
async def test_another_process_takes_over_at_its_start_or_later(own_segments: KafkaSettings, start: Receivers) -> None:
    writer = new_writer()
    one = await start(own_segments)
    async with await Client.connect(one.address) as former:
        assert await former.setup("a", writer) == 0
        assert await former.append(0, HELLO, writer) == len(HELLO)
        two = await start(own_segments)
        await serves(two, writer, len(HELLO))
        with pytest.raises(ClosedError):
            await former.append(len(HELLO), WORLD, writer)
    await until(lambda: _stands_by(one), "the former owner stands by")
    two.stop()  # SIGTERM
    assert await serves(one, writer, len(HELLO)) < 3
    three = await start(own_segments)
    await until(lambda: _stands_by(one), "the former owner stands by")
    three.kill()
    assert await serves(one, writer, len(HELLO)) < SILENCE + 5
    four = await start(own_segments)
    await until(lambda: _stands_by(one), "the former owner stands by")
    four.signal(signal.SIGSTOP)
    assert await serves(one, writer, len(HELLO)) < SILENCE + 5
    async with await Client.connect(one.address) as client:
        assert await client.setup("a", writer) == len(HELLO)
        assert await client.append(len(HELLO), WORLD, writer) == len(HELLO + WORLD)
        four.signal(signal.SIGCONT)
        await until(lambda: _stands_by(four), "who was held up learns of it")
        assert await client.content("a") == HELLO + WORLD
