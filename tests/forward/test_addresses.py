"""What TCP receivers share, tested with Forward: LIMITS__CONNECTIONS_PER_ADDRESS, and several processes on one port."""

from __future__ import annotations

import signal
import socket
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgpack
import pytest
from headrace_common.operations.errors import EXIT_CONFIG
from headrace_common.operations.settings import KafkaSettings

from tests.contract.certificates import Authority
from tests.contract.receiver import HOST, Receiver, Receivers
from tests.contract.topic import events
from tests.contract.waiting import PATIENCE, until
from tests.forward.speaking import send

pytestmark = pytest.mark.kafka

LIMIT = "LIMITS__CONNECTIONS_PER_ADDRESS"
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


async def test_one_address_does_not_shut_out_others(start: Receivers) -> None:
    """The whole limit of connections is larger than one address's, so there is always room for another one."""
    receiver = await start(limits={"connections": MOST + 1, "connections_per_address": MOST})
    began = time.monotonic()
    with from_address(receiver, "127.0.0.2") as one, from_address(receiver, "127.0.0.2") as two:
        with from_address(receiver, "127.0.0.2") as three:
            for client in (one, two, three):
                assert acknowledged(client)
            for number in range(1, 31):
                with from_address(receiver, "127.0.0.2") as greedy:
                    assert not acknowledged(greedy)
                await hit(receiver, LIMIT, number)
            with from_address(receiver, HOST) as other:
                assert acknowledged(other)
            assert await receiver.metric("limit_hits_total", limit="LIMITS__CONNECTIONS") == 0
            lines = receiver.lines("too many connections")
            windows = 2 + (time.monotonic() - began) // 10  # 10 lines within 10 s
            assert 0 < len(lines) <= 10 * windows, "a hostile peer does not fill the log"
            assert (lines[0]["peer"], lines[0]["limit"]) == ("127.0.0.2", LIMIT)
        await receiver.shows(2, "connections")
        with from_address(receiver, "127.0.0.2") as again:
            assert acknowledged(again)


@pytest.mark.parametrize(
    "limits", [{"connections": MOST}, {"connections_per_address": MOST}], ids=lambda limits: next(iter(limits))
)
async def test_a_silent_crowd_makes_way_and_who_has_sent_a_frame_does_not(
    start: Receivers, limits: dict[str, int]
) -> None:
    receiver = await start(limits=limits)
    with from_address(receiver, "127.0.0.2") as client, ExitStack() as crowd:
        assert acknowledged(client)
        silent = [crowd.enter_context(from_address(receiver, "127.0.0.2")) for _ in range(4 * MOST)]
        (limit,) = limits
        limit = f"LIMITS__{limit.upper()}"
        await hit(receiver, limit, 3 * MOST + 1)  # they have made way for each other
        with from_address(receiver, "127.0.0.2") as newcomer:
            assert acknowledged(newcomer)
            assert acknowledged(client)
            await hit(receiver, limit, 3 * MOST + 2)
        assert silent[0].recv(1) == b""
    await receiver.shows(0, "connections")
    receiver.signal(signal.SIGTERM)
    assert await receiver.ended() == 0
    assert not receiver.lines("connections cut")


def proxied(address: str) -> bytes:
    return f"PROXY TCP4 {address} 127.0.0.1 4000 24224\r\n".encode()


@pytest.mark.long
async def test_behind_a_balancer_the_clients_address_counts(start: Receivers) -> None:
    receiver = await start(listen={"trusted_proxies": "127.0.0.0/8"}, limits={"connections_per_address": 1})
    with from_address(receiver, HOST, proxied("203.0.113.5")) as one, from_address(receiver, HOST) as other:
        other.sendall(proxied("203.0.113.6"))
        assert acknowledged(one)
        assert acknowledged(other)
        with from_address(receiver, HOST, proxied("203.0.113.5")) as greedy:
            assert not acknowledged(greedy)
        await hit(receiver, LIMIT, 1)
        assert receiver.lines("too many connections")[0]["peer"] == "203.0.113.5"
        itself = b"PROXY UNKNOWN\r\n"  # the balancer: no client's address
        with from_address(receiver, HOST, itself) as first, from_address(receiver, HOST, itself) as second:
            assert acknowledged(first)
            assert acknowledged(second)
    await receiver.shows(0, "connections")
    with from_address(receiver, HOST, proxied("203.0.113.5")) as again:
        assert acknowledged(again)


@pytest.mark.long
async def test_a_handshake_that_fails_gives_its_place_back(start: Receivers, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server", "server")
    receiver = await start(tls={"cert": cert, "key": key}, limits={"connections_per_address": 1})
    for number in range(1, 4):
        with from_address(receiver, HOST) as stranger:
            stranger.sendall(b"no TLS at all, and long enough for a record\r\n" * 10)
            stranger.recv(100)
        await until(lambda n=number: len(receiver.lines("tls handshake failed")) == n, "it is told of")
    send(receiver.address, uuid.uuid4().hex, authority.context())


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
async def test_without_the_setting_a_port_has_one_process(
    start: Receivers, store: KafkaSettings, tmp_path: Path
) -> None:
    first = await start()
    second = Receiver("forward", store, tmp_path, {"listen": {"reuse_port": True}})
    second.port = first.port
    second.spawn()
    assert await second.ended() == EXIT_CONFIG
    assert "Address already in use" in second.log.read_text()


@pytest.mark.long
async def test_heartbeats_are_answered_too(pair: list[Receiver]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(60)
        client.sendto(b"\0", pair[0].address)
        assert client.recv(10)
