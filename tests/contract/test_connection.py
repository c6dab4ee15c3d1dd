"""What becomes of a connection."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import pytest
from headrace_common.record.contract import Reason

from tests.contract.dialect import EVENT_BYTES, FRAME_BYTES, ContractClient, Dialect, values
from tests.contract.receiver import Receiver
from tests.contract.topic import events

pytestmark = pytest.mark.kafka


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
async def test_who_has_finished_sending_hears_acknowledgements_and_the_end(
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
async def test_a_frame_that_is_too_large_ends_its_own_connection(dialect: Dialect, receiver: Receiver) -> None:
    """`tests.fuzz.limits` has each limit to the byte."""
    hits = await receiver.metric("limit_hits_total", limit="LIMITS__FRAME_BYTES")
    async with (
        await ContractClient.connect(dialect, receiver.address) as other,
        await ContractClient.connect(dialect, receiver.address) as client,
    ):
        await client.receives(await client.send(values(2)))
        with contextlib.suppress(ConnectionError):
            await client.send(values(2, pad=os.urandom(FRAME_BYTES).hex()))
        await client.sees_end()
        assert client.acknowledged == [0]
        await other.receives(await other.send(values(1)))
    assert await receiver.metric("limit_hits_total", limit="LIMITS__FRAME_BYTES") == hits + 1


async def test_an_event_that_is_too_large_is_quarantined(dialect: Dialect, receiver: Receiver) -> None:
    before = await receiver.metric("events_quarantined_total", reason=Reason.OVERSIZED.value)
    fits, larger = values(1), values(1, pad=os.urandom(EVENT_BYTES // 2).hex())
    async with await ContractClient.connect(dialect, receiver.address) as client:
        for frame in (fits, larger):
            await client.receives(await client.send(frame))
    marks = [frame[0]["mark"] for frame in (fits, larger)]
    assert [len(await events(receiver.kafka, mark)) for mark in marks] == [1, 0]
    assert await receiver.metric("events_quarantined_total", reason=Reason.OVERSIZED.value) == before + 1
