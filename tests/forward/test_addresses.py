"""What TCP receivers share, tested with Forward: LIMITS__CONNECTIONS, and several processes on one port."""

from __future__ import annotations

import signal
import socket
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgpack
import pytest
from headrace_common.operations.settings import KafkaSettings

from tests.contract.receiver import Receiver, Receivers
from tests.contract.topic import events
from tests.contract.waiting import PATIENCE
from tests.forward.speaking import send

pytestmark = pytest.mark.kafka

MOST = 3


@contextmanager
def from_address(receiver: Receiver, address: str, head: bytes = b"") -> Iterator[socket.socket]:
    """A connection from an address of this machine's own network, 127.0.0.0/8."""
    with socket.create_connection(receiver.address, PATIENCE, source_address=(address, 0)) as client:
        client.sendall(head)
        yield client


def acknowledged(client: socket.socket) -> bool:
    """Whether it is served; False: it was closed."""
    try:
        client.sendall(msgpack.packb(["t", 1, {"mark": uuid.uuid4().hex}, {"chunk": "c"}]))
        return bool(client.recv(100))
    except ConnectionError:
        return False


async def hit(receiver: Receiver, limit: str, times: int) -> None:
    await receiver.shows(times, "limit_hits_total", limit=limit)


async def test_a_crowd_makes_way(start: Receivers) -> None:
    receiver = await start(limits={"connections": MOST})
    with from_address(receiver, "127.0.0.2") as client, ExitStack() as crowd:
        assert acknowledged(client)
        silent = [crowd.enter_context(from_address(receiver, "127.0.0.2")) for _ in range(4 * MOST)]
        await receiver.shows(3 * MOST + 1, "limit_hits_total", limit="LIMITS__CONNECTIONS")  # for each other
        with from_address(receiver, "127.0.0.2") as newcomer:
            assert acknowledged(newcomer)
        assert silent[0].recv(1) == b""
    await receiver.shows(0, "connections")
    receiver.signal(signal.SIGTERM)
    assert await receiver.ended() == 0
    assert not receiver.lines("connections cut")


# Several processes of one receiver on one port

BOTH = 500
"""Connections until both processes have one: the kernel deals them out by a hash of the client's port. That all go to one is
as likely as 500 heads in a row."""


@pytest.fixture
async def pair(store: KafkaSettings, tmp_path: Path) -> AsyncIterator[list[Receiver]]:
    started: list[Receiver] = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        started.append(Receiver("forward", store, tmp_path / name, {"listen": {"reuse_port": True}}))
        started[-1].port = started[0].port
        await started[-1].start()
    yield started
    for receiver in started:
        receiver.stop()


async def opened(receiver: Receiver) -> float:
    return await receiver.metric("connections_opened_total")


@pytest.mark.long
async def test_both_get_connections_and_what_they_acknowledge_is_stored(
    pair: list[Receiver], store: KafkaSettings
) -> None:
    one, two = pair
    assert one.port == two.port
    assert one.ops != two.ops
    mark, sent = uuid.uuid4().hex, 0
    while not (await opened(one) and await opened(two)):
        assert sent < BOTH, "one of them gets no connection"
        send(one.address, mark)
        sent += 1
    assert await opened(one) + await opened(two) == sent
    two.stop()
    for _ in range(10):  # who is left serves all
        send(one.address, mark)
    assert len(await events(store, mark)) == sent + 10


@pytest.mark.long
async def test_heartbeats_are_answered_too(pair: list[Receiver]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(60)
        client.sendto(b"\0", pair[0].address)
        assert client.recv(10)
