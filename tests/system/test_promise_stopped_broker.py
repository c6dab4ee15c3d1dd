"""Kafka stands still: nothing is acknowledged, memory is bounded, and nothing has to be done when it comes back."""

from __future__ import annotations

import asyncio
import os
import uuid
from base64 import b64encode

import pytest
from headrace_common.operations.settings import KIB, MIB, KafkaSettings
from headrace_common.publishing.publisher import STUCK_TIME

from tests.contract.dialect import ContractClient, values
from tests.contract.forward import ForwardDialect
from tests.contract.receiver import Receiver, Receivers
from tests.contract.stopping import stopped
from tests.contract.topic import events
from tests.contract.waiting import PATIENCE, until
from tests.system.conftest import Broker
from tests.system.memory import INTERVAL, Memory

pytestmark = pytest.mark.kafka

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


class Sender:
    """Sends distinct frames that don't compress, until it is told to stop or has sent `MOST_SENT`."""

    def __init__(self, client: ContractClient, mark: str, name: int) -> None:
        self.client = client
        self.sent = 1  # the first frame, by which the connection is known to work
        self._mark = f"{mark}-{name}"
        self._enough = asyncio.Event()

    async def run(self) -> None:
        size = 0
        while not self._enough.is_set() and size < MOST_SENT:
            noise = b64encode(os.urandom(6 * KIB)).decode()
            await self.client.send(values(8, self._mark, frame=self.sent, noise=noise))
            self.sent += 1
            size += 8 * len(noise)

    def enough(self) -> None:
        self._enough.set()


async def _paused(receiver: Receiver) -> bool:
    return await receiver.metric("connections_paused") == CLIENTS


@pytest.mark.long
async def test_a_stopped_broker(broker: Broker, topics: KafkaSettings, start: Receivers) -> None:
    receiver = await start(limits=LIMITS)
    mark = uuid.uuid4().hex
    clients = [await ContractClient.connect(ForwardDialect(), receiver.address) for _ in range(CLIENTS)]
    senders = [Sender(client, mark, name) for name, client in enumerate(clients)]
    for sender in senders:
        sender.client.buffers(64 * KIB)
        await sender.client.send(values(8, sender._mark, frame=0))
        await sender.client.receives(0)
    with Memory(receiver.pid) as memory:
        with stopped(broker.pid):
            running = [asyncio.create_task(sender.run()) for sender in senders]

            async def full_up() -> bool:  # on a busy machine all may pause for a moment that still have room
                before = await receiver.metric("received_bytes_total")
                await asyncio.sleep(1)
                return await _paused(receiver) and await receiver.metric("received_bytes_total") == before

            await until(full_up, "no connection is read any more")
            full = len(memory.samples)
            read = await receiver.metric("received_bytes_total")
            assert await receiver.metric("budget_used_bytes") <= PROCESS_BUDGET
            assert await receiver.get("/livez") == (200, "ok\n")
            assert await receiver.ready() or await receiver.metric("oldest_pending_seconds") >= STUCK_TIME

            async def red() -> bool:
                assert (await receiver.get("/livez"))[0] == 200
                return not await receiver.ready()

            await until(red, "/readyz is red")
            assert await receiver.metric("oldest_pending_seconds") >= STUCK_TIME
            assert await receiver.metric("received_bytes_total") == read
            ended = [task.exception() or "it has sent everything" for task in running if task.done()]
            assert ended == []  # every client waits to be read
            assert [sender.client.acknowledged for sender in senders] == [[0]] * CLIENTS
            assert not any(client.closed for client in clients)
            await until(lambda: len(memory.samples) - full > STUCK_TIME / INTERVAL / 2, "there are samples enough")
            waiting = memory.samples[full:]
            assert max(waiting) - waiting[0] <= FLAT
            for sender in senders:
                sender.enough()
        await asyncio.wait_for(asyncio.gather(*running), PATIENCE)
        for sender in senders:
            await sender.client.receives(sender.sent - 1)
            assert sender.client.acknowledged == list(range(sender.sent))
        await until(receiver.ready, "/readyz is green again")
    assert receiver.exit_status() is None
    print(f"memory: {memory.before} at first, {memory.grown} more at most, {len(memory.samples)} samples")
    assert memory.grown <= PROCESS_BUDGET + SLACK

    records = await events(topics)
    for sender in senders:
        mine = [record for record in records if record.json["mark"] == sender._mark]
        assert [(record.json["frame"], record.json["n"]) for record in mine] == [
            (frame, n) for frame in range(sender.sent) for n in range(8)
        ]
    assert len({record.id for record in records}) == len(records)
    for client in clients:
        await client.__aexit__()
