"""One broker refuses, is slow and stands still: who is acknowledged is stored, others are served, memory is bounded, and nothing
has to be started again.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgpack
import orjson
import pytest
from headrace_common.operations.settings import KIB, MIB, KafkaSettings
from headrace_common.publishing.publisher import STUCK_TIME
from headrace_common.record.encoding import decode
from headrace_forward.client import ForwardClient

from tests.contract.dialect import ContractClient, values
from tests.contract.forward import ForwardDialect
from tests.contract.otlp import OtlpDialect
from tests.contract.receiver import Receiver, Receivers
from tests.contract.stopping import stopped
from tests.contract.topic import events, quarantined, reassembled
from tests.contract.waiting import PATIENCE, until
from tests.system.cluster import altered, write_denied
from tests.system.conftest import Broker
from tests.system.memory import Memory

pytestmark = [pytest.mark.kafka, pytest.mark.long]

FORWARD = ForwardDialect()
PARTITIONS = 4
"""Of the topics that a test gets."""

CLIENTS = 16
PROCESS_BUDGET = 16 * MIB
LIMITS = {
    "frame_bytes": 1 * MIB,
    "event_bytes": 512 * KIB,
    "inflated_bytes": 2 * MIB,
    "connection_budget": 4 * MIB,
    "process_budget": PROCESS_BUDGET,
}
MOST_SENT = 64 * MIB
"""What each client would send if it were read: far more than its budget and what the kernel takes for a socket (the last number
of ``tcp_rmem``: 6 MiB by default, 32 where it was raised).
"""

SLACK = 32 * MIB
"""What a receiver may take beyond its budget: for each of the four partitions a round of 1 MiB as records, as a batch and
compressed, its producer's copy of it; 256 KiB that a connection's socket may hand over at once; the allocator's own."""

FLAT = 2 * MIB
"""What a receiver that waits may grow by: nothing but ops pages and timers."""


@asynccontextmanager
async def connected(receiver: Receiver, count: int = 1) -> AsyncIterator[list[ContractClient]]:
    """So many clients, each known to be served. With `PARTITIONS` of them there is one on each partition."""
    async with AsyncExitStack() as ending:
        clients = [
            await ending.enter_async_context(await ContractClient.connect(FORWARD, receiver.address))
            for _ in range(count)
        ]
        for client in clients:
            await client.receives(await client.send(values(1)))
        yield clients


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
    assert sorted(decode(value)[0] for value in reassembled(rejects).values()) == sorted(map(orjson.dumps, large))
    assert await events(topics, large[0]["mark"]) == []


# It stands still


async def sending(client: ContractClient, mark: str, enough: asyncio.Event) -> int:
    """Sends distinct frames that don't compress, until there are enough or `MOST_SENT` bytes. Returns how many."""
    sent, size = 1, 0  # the first frame, by which the connection is known to work
    while not enough.is_set() and size < MOST_SENT:
        text = noise(8 * KIB)
        await client.send(values(8, mark, frame=sent, noise=text))
        sent += 1
        size += 8 * len(text)
    return sent


async def test_a_stopped_broker(broker: Broker, topics: KafkaSettings, start: Receivers) -> None:
    receiver = await start(limits=LIMITS)
    enough, mark = asyncio.Event(), uuid.uuid4().hex
    names = [f"{mark}-{name}" for name in range(CLIENTS)]
    async with connected(receiver, CLIENTS) as clients:
        for client in clients:
            client.buffers(64 * KIB)
        memory = Memory(receiver.pid)
        with stopped(broker.pid):
            running = [
                asyncio.create_task(sending(client, own, enough)) for client, own in zip(clients, names, strict=True)
            ]

            async def full_up() -> bool:  # on a busy machine all may pause for a moment that still have room
                before = await receiver.metric("received_bytes_total")
                await asyncio.sleep(1)
                paused = await receiver.metric("connections_paused") == CLIENTS
                return paused and await receiver.metric("received_bytes_total") == before

            async def red() -> bool:
                assert (await receiver.get("/livez"))[0] == 200
                return not await receiver.ready()

            await until(full_up, "no connection is read any more")
            assert memory.grown <= PROCESS_BUDGET + SLACK
            waiting, read = Memory(receiver.pid), await receiver.metric("received_bytes_total")
            assert await receiver.metric("budget_used_bytes") <= PROCESS_BUDGET
            assert await receiver.ready() or await receiver.metric("oldest_pending_seconds") >= STUCK_TIME
            await until(red, "/readyz is red")
            assert await receiver.metric("oldest_pending_seconds") >= STUCK_TIME
            assert await receiver.metric("received_bytes_total") == read
            assert not any(task.done() for task in running), "every client waits to be read"
            assert [(client.acknowledged, client.closed) for client in clients] == [([0], False)] * CLIENTS
            assert waiting.grown <= FLAT
            enough.set()
        sent = await asyncio.wait_for(asyncio.gather(*running), PATIENCE)
        for client, count in zip(clients, sent, strict=True):
            await client.receives(count - 1)
            assert client.acknowledged == list(range(count))
        await until(receiver.ready, "/readyz is green again")
        assert waiting.most - memory.before <= PROCESS_BUDGET + SLACK
    assert receiver.exit_status() is None
    records = await events(topics)
    for own, count in zip(names, sent, strict=True):
        mine = [(record.json["frame"], record.json["n"]) for record in records if record.json["mark"] == own]
        assert mine == [(frame, n) for frame in range(1, count) for n in range(8)]
    assert len({record.id for record in records}) == len(records)


@pytest.mark.long
async def test_otlp_refuses_while_kafka_is_away(broker: Broker, topics: KafkaSettings, tmp_path: Path) -> None:
    taken, refused = values(3), values(3)
    with Receivers("otlp", topics, tmp_path) as start:
        receiver = await start()
        async with AsyncExitStack() as ending:
            client, other = [
                await ending.enter_async_context(await ContractClient.connect(OtlpDialect(), receiver.address))
                for _ in "ab"
            ]
            with stopped(broker.pid):
                number = await client.send(taken)

                async def red() -> bool:
                    return not await receiver.ready()

                await until(red, "/readyz is red")
                await other.send(refused)
                await other.sees_end()
                assert (other.acknowledged, client.closed) == ([], False)
            await until(receiver.ready, "/readyz is green again")
            await client.receives(number)
            await client.receives(await client.send(values(3)))
    assert [record.json["body"] for record in await events(topics, taken[0]["mark"])] == taken
    assert await events(topics, refused[0]["mark"]) == []
