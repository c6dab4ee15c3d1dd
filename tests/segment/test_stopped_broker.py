"""The broker stands still for long, while clients write as fast as they can."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from headrace_common.operations.settings import MIB
from headrace_segment.wire.original import DataAppended, KeepAlive

from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import Receiver, Receivers
from tests.contract.stopping import stopped
from tests.contract.waiting import until
from tests.segment.client import Client, ClosedError, new_writer, segment_topics
from tests.segment.speaking import block, keep_alive, read
from tests.segment.speaking import events as framed
from tests.system.memory import Memory
from tests.tiers import sized

pytestmark = [pytest.mark.kafka, pytest.mark.long]

SECONDS = sized(10, 10, 60)
PROCESS, CONNECTION = 64 * MIB, 4 * MIB
LIMIT = 2 * PROCESS + 128 * MIB
"""What the chart lets a receiver have (docs/operations.md): above it, it would be killed."""

FEW, MANY, BLOCKS = 6, 64, 16
CONTENT = framed(bytes(256 * 1024 - 8))
OFFERED = MANY * BLOCKS * len(CONTENT)
assert OFFERED >= 4 * PROCESS


class Pusher:
    """A writer with a segment of its own, which sends all it has and comes back when it is cut off."""

    def __init__(self, service: Receiver, number: int) -> None:
        self.segment = f"s{number}"
        self.level = 0
        self._address = service.address
        self._writer = new_writer()
        self._client: Client | None = None

    async def begin(self) -> None:
        """One block, acknowledged."""
        self._client = await Client.connect(self._address)
        assert await self._client.setup(self.segment, self._writer) == 0
        self.level = await self._client.append(0, CONTENT, self._writer)

    async def push(self) -> None:
        """All of them."""
        while self.level < BLOCKS * len(CONTENT):
            client, self._client = self._client, None
            with contextlib.suppress(ClosedError):
                if client is None:
                    client = await Client.connect(self._address)
                    assert await client.setup(self.segment, self._writer) >= self.level
                await asyncio.gather(self._send(client, self.level), self._hear(client))
            if client is not None:
                await client.close()

    async def _send(self, client: Client, level: int) -> None:
        for offset in range(level, BLOCKS * len(CONTENT), len(CONTENT)):
            client.say(block(offset, CONTENT, self._writer))
            await client.drain()

    async def _hear(self, client: Client) -> None:
        while self.level < BLOCKS * len(CONTENT):
            answer = await client.reply()
            assert isinstance(answer, DataAppended)
            assert answer.level > self.level
            self.level = answer.level


async def test_nothing_is_acknowledged_keep_alives_are_echoed_and_memory_is_bounded(
    own_kafka: EmbeddedKafka, start: Receivers
) -> None:
    """Afterwards all goes on, wherever a connection was ended for it; and nothing is doubled or lost."""
    kafka = segment_topics(own_kafka.bootstrap)
    limits = {
        "frame_bytes": MIB,
        "inflated_bytes": MIB,
        "event_bytes": MIB,
        "connection_budget": CONNECTION,
        "process_budget": PROCESS,
    }
    service = await start(kafka, limits=limits, kafka={"ack_deadline": 600}, segment={"tail_wait": 1})
    pushers = [Pusher(service, number) for number in range(MANY)]
    await asyncio.gather(*(pusher.begin() for pusher in pushers))
    async with await Client.connect(service.address) as quiet, await Client.connect(service.address) as reader:
        with Memory(service.pid) as memory:
            async with asyncio.TaskGroup() as pushing:
                with stopped(own_kafka.pid):
                    for pusher in pushers[:FEW]:
                        pushing.create_task(pusher.push())
                    reader.say(read("s0", 0, 8))
                    answer = await reader.reply()
                    assert (answer.flags, answer.data) == (0, CONTENT[:8])
                    for number in range(SECONDS):
                        quiet.say(keep_alive(b"%d" % number))
                        assert await quiet.reply() == KeepAlive(b"%d" % number)
                        await asyncio.sleep(1)
                    for pusher in pushers[FEW:]:
                        pushing.create_task(pusher.push())
                    await until(lambda: service.metric("connections_paused"), "no more is read")
                    await asyncio.sleep(SECONDS / 4)
                    assert {pusher.level for pusher in pushers} == {len(CONTENT)}
                    assert await service.metric("budget_used_bytes") <= PROCESS
        assert memory.most <= LIMIT, f"{memory.most / MIB:.0f} MiB"
        assert {pusher.level for pusher in pushers} == {BLOCKS * len(CONTENT)}
        for pusher in pushers[:: MANY // 4]:
            assert await quiet.content(pusher.segment) == CONTENT * BLOCKS
    await service.shows(0, "budget_used_bytes")
