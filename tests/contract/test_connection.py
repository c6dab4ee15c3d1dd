"""What becomes of a connection."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from headrace_common.operations.settings import KIB, KafkaSettings
from headrace_common.record.contract import Reason

from tests.contract.dialect import ContractClient, Dialect, values
from tests.contract.receiver import Receiver
from tests.contract.topic import apart, events, now

pytestmark = pytest.mark.kafka

FRAME_BYTES = 64 * KIB
FRAME_TIME = 2
EVENT_BYTES = 48 * KIB


@pytest.fixture(scope="module")
def strict(dialect: Dialect, stored_in: KafkaSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """A receiver with limits that a test can hit."""
    sizes = {"frame_bytes": FRAME_BYTES, "event_bytes": EVENT_BYTES}
    limits = {**sizes, "frame_time": FRAME_TIME}
    with Receiver.of(
        dialect, apart(stored_in, dialect.segments), tmp_path_factory.mktemp("strict"), {"limits": limits}
    ) as running:
        running.spawn()
        now(running.listens())
        yield running


def about(receiver: Receiver, event: str, peer: str) -> list[dict[str, Any]]:
    return [line for line in receiver.lines(event) if line["peer"] == peer]


@pytest.mark.connection
async def test_a_protocol_error_closes_only_its_own_connection(dialect: Dialect, receiver: Receiver) -> None:
    """What was complete in front of it is stored and acknowledged, and nothing behind it counts."""
    frame, behind = values(3), values(3)
    async with (
        await ContractClient.connect(dialect, receiver.address) as other,
        await ContractClient.connect(dialect, receiver.address) as client,
    ):
        await other.receives(await other.send(values(2)))
        whole, rest = client.conversation.frame(frame), dialect.malformed + client.conversation.frame(behind)
        await client.write(whole + rest)
        await client.sees_end()
        assert client.acknowledged == [0]
        (line,) = about(receiver, "protocol error", client.local)
        assert line["offset"] == len(whole)
        assert rest.startswith(bytes.fromhex(line["bytes"]))
        assert line["level"] == "warning"
        await other.receives(await other.send(values(2)))
    assert len(await events(receiver.kafka, frame[0]["mark"])) == len(frame)
    assert await events(receiver.kafka, behind[0]["mark"]) == []


@pytest.mark.connection
async def test_half_a_frame_and_then_the_end(dialect: Dialect, receiver: Receiver) -> None:
    first, second = values(2), values(5)
    async with await ContractClient.connect(dialect, receiver.address) as client:
        whole = client.conversation.frame(first)
        half = client.conversation.frame(second)
        await client.write(whole + half[: len(half) // 2])
        client.finish()
        await client.sees_end()
        assert client.acknowledged == [0]
        (line,) = about(receiver, "protocol error", client.local)
        assert 0 <= line["offset"] - len(whole) < len(half) // 2  # a window begins with a frame of its own
    assert len(await events(receiver.kafka, first[0]["mark"])) == len(first)
    assert await events(receiver.kafka, second[0]["mark"]) == []


@pytest.mark.connection
async def test_a_client_that_has_finished_sending_still_gets_its_acknowledgements(
    dialect: Dialect, receiver: Receiver
) -> None:
    async with await ContractClient.connect(dialect, receiver.address) as client:
        for _ in range(20):
            await client.send(values(50))
        client.finish()
        await client.sees_end()
        assert client.acknowledged == list(range(20))
    assert about(receiver, "protocol error", client.local) == []


@pytest.mark.connection
async def test_a_connection_that_says_nothing_is_nothing_special(dialect: Dialect, receiver: Receiver) -> None:
    """Probes, and fluentd's heartbeats: connect and close."""
    told = receiver.told()
    for _ in range(20):
        async with await ContractClient.connect(dialect, receiver.address) as client:
            client.finish()
            await client.sees_end()
    assert receiver.told() == told


async def test_a_frame_split_anywhere_is_the_same_frame(dialect: Dialect, receiver: Receiver) -> None:
    frame = values(6)
    async with await ContractClient.connect(dialect, receiver.address) as client:
        data = client.conversation.frame(frame)
        for at in range(len(data)):
            await client.write(data[at : at + 1])
            await asyncio.sleep(0)
        await client.receives(0)
    assert [dialect.value(record.json) for record in await events(receiver.kafka, frame[0]["mark"])] == frame


@pytest.mark.shared
@pytest.mark.connection
async def test_a_frame_that_dribbles_in_is_cut(dialect: Dialect, strict: Receiver) -> None:
    hits = await strict.metric("limit_hits_total", limit="LIMITS__FRAME_TIME")
    async with (
        await ContractClient.connect(dialect, strict.address) as other,
        await ContractClient.connect(dialect, strict.address) as client,
    ):
        await client.receives(await client.send(values(1)))
        data = client.conversation.frame(values(50))
        began = time.monotonic()
        for at in range(len(data) - 1):  # one byte again and again is no progress that counts
            if client.closed or time.monotonic() > began + 3 * FRAME_TIME:
                break
            with contextlib.suppress(ConnectionError):
                await client.write(data[at : at + 1])
            await client.waits_for(lambda: client.closed, 0.05)
        took = time.monotonic() - began
        await client.sees_end()
        assert took >= FRAME_TIME
        assert client.acknowledged == [0]
        await other.receives(await other.send(values(1)))
    assert await strict.metric("limit_hits_total", limit="LIMITS__FRAME_TIME") == hits + 1


@pytest.mark.connection
async def test_a_frame_that_is_too_large_ends_its_own_connection(dialect: Dialect, strict: Receiver) -> None:
    """`tests.fuzz.truth.limits` has each limit to the byte."""
    hits = await strict.metric("limit_hits_total", limit="LIMITS__FRAME_BYTES")
    async with (
        await ContractClient.connect(dialect, strict.address) as other,
        await ContractClient.connect(dialect, strict.address) as client,
    ):
        await client.receives(await client.send(values(2)))
        with contextlib.suppress(ConnectionError):
            await client.send(values(2, pad=os.urandom(FRAME_BYTES).hex()))
        await client.sees_end()
        assert client.acknowledged == [0]
        await other.receives(await other.send(values(1)))
    assert await strict.metric("limit_hits_total", limit="LIMITS__FRAME_BYTES") == hits + 1


async def test_an_event_that_is_too_large_is_quarantined(dialect: Dialect, strict: Receiver) -> None:
    before = await strict.metric("events_quarantined_total", reason=Reason.OVERSIZED.value)
    fits, larger = values(1), values(1, pad=os.urandom(EVENT_BYTES // 2).hex())
    async with await ContractClient.connect(dialect, strict.address) as client:
        for frame in (fits, larger):
            await client.receives(await client.send(frame))
    marks = [frame[0]["mark"] for frame in (fits, larger)]
    assert [len(await events(strict.kafka, mark)) for mark in marks] == [1, 0]
    assert await strict.metric("events_quarantined_total", reason=Reason.OVERSIZED.value) == before + 1
