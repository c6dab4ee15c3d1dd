"""Kafka refuses: the client is not acknowledged, the others are served, and nothing has to be started again."""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgpack
import orjson
import pytest
from headrace_common.operations.settings import KIB, KafkaSettings
from headrace_common.publishing.delivery import REFUSALS_PER_BATCH
from headrace_common.publishing.publisher import QUIET_TIME
from headrace_forward.client import ForwardClient

from tests.contract.dialect import ContractClient, values
from tests.contract.forward import ForwardDialect
from tests.contract.receiver import Receiver, Receivers
from tests.contract.stopping import stopped
from tests.contract.topic import events, quarantined, reassembled
from tests.contract.waiting import PATIENCE, until
from tests.system.cluster import altered, throttled, write_denied
from tests.system.conftest import Broker

pytestmark = pytest.mark.kafka

FORWARD = ForwardDialect()
PARTITIONS = 4


@asynccontextmanager
async def connected(receiver: Receiver, count: int = 1) -> AsyncIterator[list[ContractClient]]:
    """So many clients, each known to be served. With `PARTITIONS` of them there is one on each partition."""
    clients = [await ContractClient.connect(FORWARD, receiver.address) for _ in range(count)]
    try:
        for client in clients:
            await client.receives(await client.send(values(1)))
        yield clients
    finally:
        for client in clients:
            await client.__aexit__()


async def served(receiver: Receiver, count: int = PARTITIONS) -> None:
    """New clients on every partition are."""
    async with connected(receiver, count):
        pass


def noise(size: int) -> str:
    """Text of `size` characters that compresses by a quarter and no more."""
    return b64encode(os.urandom(size)).decode()[:size]


async def test_events_may_not_be_written(topics: KafkaSettings, start: Receivers) -> None:
    receiver = await start()
    frame, (bad,) = values(5), values(1)
    async with connected(receiver, 2) as (client, other):
        async with write_denied(topics, topics.events_topic):
            number = await client.send(frame)
            await client.sees_end()
            assert number not in client.acknowledged
            assert isinstance(other.conversation.client, ForwardClient)
            await other.receives(
                await other.send_frame(other.conversation.client.packed(msgpack.packb([1, bad["mark"]]), 1))
            )
            assert len(await quarantined(topics, bad["mark"])) == 1
            assert (await receiver.get("/livez"))[0] == 200
        await served(receiver)
        assert not other.closed
    assert receiver.exit_status() is None
    assert await receiver.metric("frames_abandoned_total") == 1
    assert await events(topics, frame[0]["mark"]) == []
    assert await quarantined(topics, frame[0]["mark"]) == []


@pytest.mark.long
async def test_a_quota_is_used_up(topics: KafkaSettings, start: Receivers) -> None:
    """Frames waited, and the reason was "no answer"."""
    receiver = await start(kafka={"request_timeout": 1.5 * QUIET_TIME})
    async with connected(receiver) as (client,):
        sent = []
        async with throttled(topics, 10):

            async def is_throttled() -> bool:
                sent.append(await client.send(values(1, noise=noise(4 * KIB))))
                return await receiver.metric("kafka_throttled_seconds_total") > 2 * QUIET_TIME

            await until(is_throttled, "the quota is heeded")
            sent.append(await client.send(values(1)))
            await until(lambda: receiver.lines("kafka stores nothing"), "the silence is told")
        for number in sent:
            await client.receives(number)
    assert [line["problem"] for line in receiver.lines("kafka stores nothing")] == ["a quota of Kafka's is used up"]


async def test_quarantine_may_not_be_written(topics: KafkaSettings, start: Receivers) -> None:
    receiver = await start()
    frame, bad = values(5), values(5)
    async with connected(receiver, 2) as (client, other):
        async with write_denied(topics, topics.quarantine_topic):
            number = await client.send_faulty(bad)
            await client.sees_end()
            assert number not in client.acknowledged
            await other.receives(await other.send(frame))
            await served(receiver)
        async with await ContractClient.connect(FORWARD, receiver.address) as again:
            await again.receives(await again.send_faulty(bad))
        await other.receives(await other.send(values(1)))
    assert len(await events(topics, frame[0]["mark"])) == len(frame)
    assert len(await quarantined(topics, bad[0]["mark"])) == 1


async def test_a_record_is_larger_than_the_topic_takes_by_now(topics: KafkaSettings, start: Receivers) -> None:
    """The limit was lowered under a receiver that knows the old one: the offending records go to quarantine."""
    receiver = await start()
    small, large = values(4), values(3, noise=noise(300 * KIB))
    async with connected(receiver, PARTITIONS) as (client, *others):
        async with altered(topics, topics.events_topic, max_message_bytes=100 * KIB):
            mixed = [*small[:2], *large, *small[2:]]
            number = await client.send(mixed)
            for other in others:
                await other.receives(await other.send(values(2)))
            await client.receives(number)
            await client.receives(await client.send(values(2)))
        await served(receiver)
    assert [record.json for record in await events(topics, small[0]["mark"])] == small
    rejects = await quarantined(topics)
    assert {record["reason"] for record in rejects} == {"refused"}
    assert sorted(reassembled(rejects).values()) == sorted(orjson.dumps(value) for value in large)
    assert await events(topics, large[0]["mark"]) == []


@pytest.mark.long
async def test_a_topic_that_takes_no_record_of_ours(topics: KafkaSettings, start: Receivers) -> None:
    """Compaction wants keys, and ours have none: it is the topic that is at fault, however few records come at a time."""
    receiver = await start()
    frames = values(3), values(4 * REFUSALS_PER_BATCH)
    async with connected(receiver, 2) as clients:
        async with altered(topics, topics.events_topic, cleanup_policy="compact"):
            for client, frame in zip(clients, frames, strict=True):
                number = await client.send(frame)
                await client.sees_end()
                assert number not in client.acknowledged
        await served(receiver)
    for frame in frames:
        assert await events(topics, frame[0]["mark"]) == []
        assert await quarantined(topics, frame[0]["mark"]) == []


@pytest.mark.long
async def test_a_timestamp_is_refused(broker: Broker, topics: KafkaSettings, start: Receivers) -> None:
    """Our clock is wrong, the records are not: unready, closed, and nothing in quarantine.

    The topic takes no record from an earlier millisecond. The broker stands still until the frame's has passed: a quick
    machine stores a record within it.
    """
    receiver = await start()
    frame, bad = values(5), values(5)
    async with connected(receiver, PARTITIONS) as (client, *others):
        async with altered(topics, topics.events_topic, message_timestamp_before_max_ms=0):
            with stopped(broker.pid):
                number = await client.send(frame)
                await until(lambda: receiver.metric("frames_pending"), "the frame waits for Kafka")
                await asyncio.sleep(0.05)
            await client.sees_end()
            assert number not in client.acknowledged
            status, text = await receiver.get("/readyz")
            assert (status, text.startswith("clock")) == (503, True)
            assert (await receiver.get("/livez"))[0] == 200
            assert not any(other.closed for other in others)
        for other in others:
            await other.receives(await other.send(values(2)))
        await others[0].receives(await others[0].send_faulty(bad))
        await served(receiver)
        await until(receiver.ready, "/readyz is green again")
    assert await quarantined(topics, frame[0]["mark"]) == []
    assert await events(topics, frame[0]["mark"]) == []
    assert len(await quarantined(topics, bad[0]["mark"])) == 1
    assert receiver.exit_status() is None


async def test_a_batch_is_not_stored_within_its_time(broker: Broker, topics: KafkaSettings, start: Receivers) -> None:
    """Before and after, a busy machine may need longer than that to store: the client comes again until it is acknowledged."""
    receiver = await start(kafka={"ack_deadline": 1})
    frame = values(50)
    client, idle = [await ContractClient.connect(FORWARD, receiver.address) for _ in range(2)]
    data = client.conversation.frame(frame)
    with stopped(broker.pid):
        await client.write(data)
        await client.sees_end()
        assert client.acknowledged == []
        assert not idle.closed
        assert (await receiver.get("/livez"))[0] == 200
        assert await receiver.metric("frames_abandoned_total") == 1
    assert await receiver.metric("events_republished_total") == 0
    for each in (client, idle):
        await each.__aexit__()

    async def acknowledged() -> bool:
        again = await ContractClient.connect(FORWARD, receiver.address, conversation=client.conversation)
        async with again:
            await again.write(data)
            await again.waits_for(lambda: again.acknowledged, PATIENCE)
            return bool(again.acknowledged)

    await until(acknowledged, "what is sent again is stored in time")
    assert receiver.exit_status() is None
    records = await events(topics, frame[0]["mark"])
    assert {record.json["n"] for record in records} == set(range(len(frame)))
    assert len({record.id for record in records}) == len(frame)  # however often Kafka has stored it
