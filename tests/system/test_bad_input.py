"""Hostile bytes over sockets: closed or quarantined, in bounded memory, told once, and nobody else notices."""

from __future__ import annotations

import asyncio
import random
import uuid
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgpack
import pytest
from headrace_common.operations.settings import KIB, MIB
from headrace_forward.client import ForwardClient

from tests.contract.dialect import ContractClient, values
from tests.contract.forward import ForwardDialect
from tests.contract.receiver import Receiver, Receivers
from tests.contract.topic import quarantined, reassembled
from tests.contract.waiting import until
from tests.system.memory import Memory

pytestmark = [pytest.mark.kafka, pytest.mark.long]

FORWARD = ForwardDialect()
INFLATED_BYTES = 8 * MIB
PROCESS_BUDGET = 48 * MIB
SLACK = 32 * MIB
"""Beyond the budget: rounds of 1 MiB in each of the four partitions, what the sockets hand over, the allocator's own."""

LIMITS = {
    "frame_bytes": 4 * MIB,
    "inflated_bytes": INFLATED_BYTES,
    "connection_budget": PROCESS_BUDGET // 2,
    "process_budget": PROCESS_BUDGET,
}
ATTACKERS = 12


@asynccontextmanager
async def watched(receiver: Receiver, grows: int) -> AsyncIterator[list[int]]:
    """Meanwhile another client is served without a break, and the receiver takes at most `grows` bytes more.

    Yields what that client has sent and heard to be stored, an entry for each time.
    """
    enough, served = asyncio.Event(), list[int]()

    async def undisturbed(client: ContractClient) -> None:
        while not enough.is_set():
            await client.receives(await client.send(values(20)))
            served.append(20)

    async with await ContractClient.connect(FORWARD, receiver.address) as other:
        await other.receives(await other.send(values(20)))
        memory = Memory(receiver.pid)
        bystander = asyncio.create_task(undisturbed(other))
        try:
            yield served
        finally:
            enough.set()
            await bystander
        await other.receives(await other.send(values(20)))
    assert memory.grown <= grows
    assert receiver.exit_status() is None
    assert (await receiver.get("/livez"))[0] == 200


def bomb(size: int, text: bytes = b"\0") -> bytes:
    """`size` bytes of `text` again and again, as gzip, made without holding them."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    piece = text * (MIB // len(text))
    return b"".join([*(packer.compress(piece) for _ in range(size // len(piece))), packer.flush()])


async def test_gzip_bombs(start: Receivers) -> None:
    """Quarantined as they came and acknowledged: a resend would be no better. Many at once stay within the budget."""
    receiver = await start(limits=LIMITS)
    bodies = (
        (bomb(2 * INFLATED_BYTES, random.Random(1).randbytes(2 * KIB)), "beyond"),
        (bomb(128 * MIB), "beyond"),
        (bomb(4 * MIB) * 100, "beyond"),  # in many members
    )
    for body, says in bodies:
        clients = [await ContractClient.connect(FORWARD, receiver.address) for _ in range(ATTACKERS)]
        mark = uuid.uuid4().hex
        async with watched(receiver, PROCESS_BUDGET + SLACK):
            for client in clients:
                assert isinstance(client.conversation.client, ForwardClient)
                await client.send_frame(client.conversation.client.packed(body, 1, compressed="gzip", mark=mark))
            for client in clients:
                await client.receives(0)
        for client in clients:
            await client.receives(await client.send(values(1)))
            await client.__aexit__()
        rejects = await quarantined(receiver.kafka, mark)
        raw = reassembled(rejects)
        assert [msgpack.unpackb(each)[1] for each in raw.values()] == [body] * ATTACKERS
        assert {record["reason"] for record in rejects} == {"inflated_limit"}
        assert all(says in record["detail"] for record in rejects)


CROWD = 400
BEGINNING = b"\x92\xa3tag\xc6" + (3 * MIB).to_bytes(4, "big") + bytes(MIB)


async def test_hundreds_that_bring_beginnings_at_the_same_moment(start: Receivers) -> None:
    """None of them brings a message, or what one connection may hold; together they would be ten budgets."""
    receiver = await start(limits=LIMITS)
    writers = [(await asyncio.open_connection(*receiver.address))[1] for _ in range(CROWD)]
    try:
        async with watched(receiver, PROCESS_BUDGET // 2 + SLACK) as served:
            for writer in writers[:]:
                writer.write(BEGINNING)
                writers.append((await asyncio.open_connection(*receiver.address))[1])  # and one that comes meanwhile
                writers[-1].write(BEGINNING)
            before = len(served)
            await until(lambda: len(served) >= before + 5, "the other client is served five times more")
    finally:
        for writer in writers:
            writer.transport.abort()
