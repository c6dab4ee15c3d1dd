"""The service itself, over sockets: the other ways in, and who may come."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest
from headrace_common.listening.proxy import SIGNATURE_V2
from headrace_common.operations.settings import KafkaSettings

from tests.contract.dialect import ContractClient, values
from tests.contract.forward import ForwardDialect
from tests.contract.receiver import Receivers
from tests.contract.topic import events
from tests.contract.waiting import PATIENCE, until

pytestmark = pytest.mark.kafka

FORWARD = ForwardDialect()


async def source(store: KafkaSettings, address: tuple[str, int], head: bytes = b"") -> str:
    """Whose an event is, that is acknowledged. `head`: what comes before it, in one segment: not a byte too many may be taken."""
    frame = values(1)
    async with await ContractClient.connect(FORWARD, address) as client:
        await client.receives(await client.send_frame(head + client.conversation.frame(frame)))
    (record,) = await events(store, frame[0]["mark"])
    return record["ce_source"]


async def closes_on(address: tuple[str, int], data: bytes) -> None:
    """Waits until the service has closed a connection on which this has come, without a word."""
    async with await ContractClient.connect(FORWARD, address) as client:
        await client.write(data)
        await client.sees_end()
        assert not client.acknowledged


async def comes_and_goes(address: tuple[str, int]) -> None:
    _, writer = await asyncio.open_connection(*address)
    writer.close()


async def test_heartbeats_by_udp_and_by_empty_connections(start: Receivers, store: KafkaSettings) -> None:
    receiver, keyed = await start(log={"level": "info"}), await start(forward={"shared_key": "k"})
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.settimeout(PATIENCE)
        for data in (b"\0", b"anything at all"):
            for each in (receiver, keyed):
                probe.sendto(data, each.address)
                assert probe.recvfrom(64) == (b"\0", each.address)
    reader, writer = await asyncio.open_connection(*keyed.address)
    writer.write(FORWARD.conversation().frame(values(1)))  # only its heartbeats need no key
    await asyncio.wait_for(reader.readuntil(b"PONG\xc2"), PATIENCE)
    writer.close()
    for _ in range(20):
        await comes_and_goes(receiver.address)
    await until(lambda: receiver.metric("connections_opened_total"), "they were seen")
    await source(store, receiver.address)
    assert [line["event"] for line in receiver.told()] == ["kafka answers", "ready"]
    quiet = await start(forward={"heartbeat": False})
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(quiet.address)
        probe.send(b"\0")
        probe.settimeout(PATIENCE)
        with pytest.raises(ConnectionRefusedError):
            probe.recv(1)


async def test_ipv6(start: Receivers, store: KafkaSettings) -> None:
    receiver = await start(listen={"host": "::"})
    for address, name in (("::1", "/forward/%3A%3A1"), ("127.0.0.1", "/forward/127.0.0.1")):
        assert await source(store, (address, receiver.port)) == name


def v2(source: str, port: int) -> bytes:
    addresses = socket.inet_aton(source) + socket.inet_aton("198.51.100.1") + struct.pack(">HH", port, 24224)
    return SIGNATURE_V2 + struct.pack(">BBH", 0x21, 0x11, len(addresses)) + addresses


PROXIED = {
    "v1": (b"PROXY TCP4 203.0.113.5 198.51.100.1 4000 24224\r\n", "203.0.113.5"),
    "v1, unknown": (b"PROXY UNKNOWN\r\n", "127.0.0.1"),
    "v2": (v2("203.0.113.6", 4000), "203.0.113.6"),
}


async def test_the_proxy_protocol_from_those_who_are_trusted(start: Receivers, store: KafkaSettings) -> None:
    receiver = await start(listen={"trusted_proxies": "127.0.0.0/8"})
    for name, (head, client) in PROXIED.items():
        assert await source(store, receiver.address, head) == f"/forward/{client}", name
    await closes_on(receiver.address, FORWARD.conversation().frame(values(1)))  # no header
    await until(lambda: receiver.lines("proxy header refused"), "it is told of")
    await comes_and_goes(receiver.address)  # a balancer's health check
    hasty = await start(listen={"trusted_proxies": "127.0.0.0/8"}, limits={"handshake_time": 1})
    await closes_on(hasty.address, b"PROXY TCP4 203")  # half a header
    await until(lambda: hasty.lines("handshake took too long"), "its time is up")
    assert await hasty.metric("limit_hits_total", limit="LIMITS__HANDSHAKE_TIME") == 1
    assert await receiver.metric("limit_hits_total", limit="LIMITS__HANDSHAKE_TIME") == 0
    far = await start(listen={"trusted_proxies": "192.0.2.0/24"})
    assert await source(store, far.address) == "/forward/127.0.0.1"
    await closes_on(far.address, PROXIED["v1"][0])  # nobody else may claim an address
