"""What becomes of a connection."""

from __future__ import annotations

import contextlib
import os
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
EVENT_BYTES = 48 * KIB


@pytest.fixture(scope="module")
def strict(dialect: Dialect, stored_in: KafkaSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """A receiver with limits that a test can hit."""
    limits = {"frame_bytes": FRAME_BYTES, "event_bytes": EVENT_BYTES}
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
@pytest.mark.parametrize(
    ("frames", "half"), [(0, False), (20, False), (1, True)], ids=["nothing", "whole frames", "half a frame"]
)
async def test_a_client_that_has_finished_sending_hears_its_acknowledgements_and_the_end(
    dialect: Dialect, receiver: Receiver, frames: int, half: bool
) -> None:
    """Of half a frame nothing. Probes, and fluentd's heartbeats, connect and close: that is nothing special."""
    (first, *_), behind, told, size = values(1), values(1), receiver.told(), 0
    async with await ContractClient.connect(dialect, receiver.address) as client:
        for _ in range(frames):
            frame = client.conversation.frame(values(50, first["mark"]))
            size += len(frame)
            await client.send_frame(frame)
        rest = client.conversation.frame(behind)
        await client.write(rest[: len(rest) // 2 * half])
        client.finish()
        await client.sees_end()
        assert client.acknowledged == list(range(frames))
        offsets = [line["offset"] - size for line in about(receiver, "protocol error", client.local)]
    assert len(offsets) == half
    assert all(0 <= offset < len(rest) // 2 for offset in offsets)  # a window begins with a frame of its own
    assert half or receiver.told() == told
    assert len(await events(receiver.kafka, first["mark"])) == 50 * frames
    assert await events(receiver.kafka, behind[0]["mark"]) == []


@pytest.mark.connection
async def test_a_frame_that_is_too_large_ends_its_own_connection(dialect: Dialect, strict: Receiver) -> None:
    """`tests.fuzz.limits` has each limit to the byte."""
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
