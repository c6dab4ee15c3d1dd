"""Who is disconnected, and what ZeroMQ may hold of clients: as a decision, and with clients that speak by themselves."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import zmq
import zmq.asyncio
from headrace_common.operations.settings import KIB, MIB, KafkaSettings
from headrace_logjam.peers import AMPLIFIED, CLIENT, Peer, excess

from tests.contract.logjam import COMMAND, GREETING, MORE, READY, zmtp
from tests.contract.receiver import HOST
from tests.contract.waiting import PATIENCE, until
from tests.logjam.driving import asking, event
from tests.logjam.test_service import ACCEPTED, Logjam, connected, heard

BUDGET = "LIMITS__PROCESS_BUDGET"
PUSH = zmtp(COMMAND, b"\5READY\x0bSocket-Type\0\0\0\4PUSH")


def test_what_is_delivered_or_in_the_kernel_is_not_held() -> None:
    with socket.create_server((HOST, 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        peer = Peer(accepted.fileno())
        steps = ((900, 0, 0, 0), (100, 800, 0, 800), (0, 0, 500, 300), (0, 200, 5000, 0), (70, 70, 0, 70))
        for sent, read, delivered, held in steps:
            client.sendall(bytes(sent))
            accepted.recv(read, socket.MSG_WAITALL)
            peer.delivered += delivered  # an upper bound of what it was on the wire: no credit is kept
            peer.look()
            assert peer.held == held
        peer.shut()
        assert not client.recv(1)
        peer.forget()
        accepted.close()


BYTES = 16 * MIB
MOST = BYTES + 3 * CLIENT
FEW = BYTES // AMPLIFIED + 1
"""Empty frames: two bytes each on the wire, 64 in memory."""


@pytest.mark.parametrize(
    ("held", "memory", "leaves"),
    [
        (MOST, 0, False),
        (MOST + 1, 0, True),
        (FEW, 2 * MOST, False),
        (FEW - 1, 2 * MOST + 1, False),
        (FEW, 2 * MOST + 1, True),
    ],
)
def test_the_largest_leave_until_half_is_left(held: int, memory: int, leaves: bool) -> None:
    there = [SimpleNamespace(held=each) for each in (held // 4, held - held // 4 * 2, held // 4)]
    assert excess(cast("Any", there), BYTES, memory) == there[1:2] * leaves


class Client:
    """A peer that speaks ZMTP by itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def come(cls, port: int, *said: bytes) -> Client:
        """Says its greeting, and waits for the end of the handshake if it says more."""
        made = cls(*await asyncio.open_connection(HOST, port))
        for each in said:
            made.writer.write(each)
        if said == (GREETING, PUSH):  # nothing may be said before
            async with asyncio.timeout(PATIENCE):
                *_, length = await made.reader.readexactly(len(GREETING) + 2)
                await made.reader.readexactly(length)
        return made

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def ended(self) -> None:
        """Waits until the receiver has ended it."""
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionError):
                while await self.reader.read(1 << 16):
                    pass


SMALL: dict[str, object] = {
    "frame_bytes": MIB, "event_bytes": 64 * KIB, "inflated_bytes": MIB, "connection_budget": 4 * MIB, "process_budget": 64 * MIB,
}  # fmt: skip


@pytest.mark.kafka
async def test_endless_senders_and_half_of_a_crowd_are_ended(
    topics: KafkaSettings, tmp_path: Path, context: zmq.asyncio.Context
) -> None:
    with Logjam(topics, tmp_path, limits=SMALL) as receiver:
        await receiver.start()
        honest = connected(context, zmq.DEALER, receiver.port)
        endless = await Client.come(receiver.pull_port, GREETING, PUSH)

        async def flood() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    await endless.say(zmtp(MORE, bytes(MIB)))

        flooding = asyncio.create_task(flood())
        await endless.ended()
        flooding.cancel()
        assert await receiver.metric("limit_hits_total", limit=BUDGET) == 1
        crowd: list[Client] = []
        for count in (40, 80):  # each with a MiB of a message that does not end
            await receiver.shows(1, "limit_hits_total", limit=BUDGET)
            for _ in range(count):
                crowd.append(await Client.come(receiver.pull_port, GREETING, PUSH))
                await crowd[-1].say(zmtp(MORE, bytes(MIB - 9)))

        async def left() -> bool:
            return await receiver.metric("limit_hits_total", limit=BUDGET) > 20

        await until(left, "half of them leave")
        await honest.send_multipart(asking(event({})))
        assert await heard(honest) == ACCEPTED


@pytest.mark.kafka
async def test_only_a_client_too_many_or_without_mechanism_is_refused(topics: KafkaSettings, tmp_path: Path) -> None:
    with Logjam(topics, tmp_path, limits={"connections": 2, "handshake_time": 0.5}) as receiver:
        await receiver.start()
        visitor = await Client.come(receiver.port, GREETING)
        visitor.writer.close()
        await (await Client.come(receiver.port, GREETING)).ended()  # too slow
        await receiver.shows(0, "logjam_clients")
        assert await receiver.metric("connections_closed_total", why="handshake") == 0
        await (await Client.come(receiver.port, GREETING.replace(b"NULL", b"CURV"), READY)).ended()
        await receiver.shows(1, "connections_closed_total", why="handshake")
        first, _ = [await Client.come(receiver.pull_port, GREETING, PUSH) for _ in range(2)]
        await (await Client.come(receiver.port, GREETING)).ended()
        await receiver.shows(1, "limit_hits_total", limit="LIMITS__CONNECTIONS")
        await receiver.shows(2, "logjam_clients")
        first.writer.close()
        await receiver.shows(1, "logjam_clients")
        await Client.come(receiver.pull_port, GREETING, PUSH)
