"""The receiver over sockets: what a session cannot show by itself."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import psutil
import pytest
from headrace_common.operations.settings import MIB, KafkaSettings
from headrace_lumberjack.wire import compressed, json_frame, window

from tests.contract.dialect import ContractClient, values
from tests.contract.embedded import EmbeddedKafka
from tests.contract.lumberjack import LumberjackDialect
from tests.contract.receiver import Receiver
from tests.contract.stopping import stopped
from tests.contract.topic import events, own_topics
from tests.contract.waiting import PATIENCE, until
from tests.lumberjack.driving import acks

pytestmark = pytest.mark.kafka

DIALECT = LumberjackDialect()
SLACK = 100 * MIB
"""What the process may take for one bomb beyond LIMITS__INFLATED_BYTES: the allocator's own, and the stream itself."""


@pytest.fixture
def settings(kafka: EmbeddedKafka) -> KafkaSettings:
    return own_topics(kafka.bootstrap)


@pytest.fixture
async def receiver(settings: KafkaSettings, tmp_path: Path) -> AsyncIterator[Receiver]:
    running = Receiver("lumberjack", settings, tmp_path)
    await running.start()
    yield running
    running.stop()


async def test_a_window_that_takes_many_turns_is_acknowledged_though_its_client_has_finished(
    receiver: Receiver,
) -> None:
    """24 MiB of content in one C frame, the end of the connection right behind it; others are served meanwhile."""
    mark = uuid.uuid4().hex
    documents = [orjson.dumps({"mark": mark, "n": n, "pad": os.urandom(600).hex()}) for n in range(20_000)]
    data = window(20_000) + compressed(b"".join(json_frame(1 + n, item) for n, item in enumerate(documents)), 1)
    reader, writer = await asyncio.open_connection(*receiver.address)
    async with await ContractClient.connect(DIALECT, receiver.address) as other:
        writer.write(data)
        writer.write_eof()
        await other.receives(await other.send(values(1)))
        heard = await asyncio.wait_for(reader.read(), PATIENCE)
    writer.close()
    numbers = [number for _, number in acks(heard)]
    assert numbers[-1] == 20_000
    assert numbers == sorted(numbers)
    assert numbers.count(20_000) == 1
    records = await events(receiver.kafka, mark)
    assert [record.value for record in records] == documents
    await receiver.shows(0, "budget_used_bytes")


async def test_a_bomb_closes_its_connection_and_is_bounded(receiver: Receiver) -> None:
    before = psutil.Process(receiver.pid).memory_info().rss
    bomb = window(1) + compressed(bytes(150 * MIB), 9)
    highest = before
    async with await ContractClient.connect(DIALECT, receiver.address) as other:
        async with await ContractClient.connect(DIALECT, receiver.address) as client:
            await client.write(bomb)
            while not client.closed:
                highest = max(highest, psutil.Process(receiver.pid).memory_info().rss)
                await asyncio.sleep(0.005)
            assert client.acknowledged == []
        await other.receives(await other.send(values(1)))
    assert highest - before < 64 * MIB + SLACK
    assert await receiver.metric("limit_hits_total", limit="LIMITS__INFLATED_BYTES") == 1
    (line,) = receiver.lines("protocol error")
    assert line["limit"] == "LIMITS__INFLATED_BYTES"
    assert line["offset"] == 6
    await receiver.shows(0, "budget_used_bytes")


async def test_a_service_that_stops_inside_a_window_says_how_far_it_was_stored(
    kafka: EmbeddedKafka, receiver: Receiver
) -> None:
    """Its client need not send that part again; the number is said when Kafka has it, not before."""
    mark, heard = uuid.uuid4().hex, bytearray()
    frames = [json_frame(n or 1, orjson.dumps({"mark": mark, "n": n})) for n in range(100)]
    reader, writer = await asyncio.open_connection(*receiver.address)

    async def listen() -> None:
        while data := await reader.read(100):
            heard.extend(data)

    listening = asyncio.create_task(listen())
    writer.write(window(1) + frames[0])
    await until(lambda: ("2", 1) in acks(bytes(heard)), "the first window is acknowledged")
    first = len(heard)
    with stopped(kafka.pid):
        writer.write(window(100) + b"".join(frames[1:]))
        await until(lambda: receiver.metric("frames_pending"), "it waits for Kafka")
        receiver.signal(signal.SIGTERM)
        await until(lambda: receiver.lines("stopping"), "it stops")
        assert not any(number for _, number in acks(bytes(heard[first:])))
        assert not listening.done()
    await asyncio.wait_for(listening, PATIENCE)
    said = [number for _, number in acks(bytes(heard[first:])) if number]
    assert said == sorted(set(said))  # on its way, what Kafka has by then
    assert said[-1:] == [99]
    assert await receiver.ended() == 0
    assert [record.json["n"] for record in await events(receiver.kafka, mark)] == list(range(100))
