"""The service itself, over sockets: the other ways in, and who may come."""

from __future__ import annotations

import asyncio
import socket

import pytest
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
        _, writer = await asyncio.open_connection(*receiver.address)
        writer.close()
    await until(lambda: receiver.metric("connections_opened_total"), "they were seen")
    await source(store, receiver.address)
    assert [line["event"] for line in receiver.told()] == ["kafka answers", "ready"]


async def test_ipv6_and_a_proxy_and_no_heartbeats(start: Receivers, store: KafkaSettings) -> None:
    listen = {"host": "::", "trusted_proxies": "127.0.0.0/8"}
    receiver = await start(listen=listen, forward={"heartbeat": False})
    head = b"PROXY TCP4 203.0.113.5 198.51.100.1 4000 24224\r\n"
    for address, before, name in (("::1", b"", "%3A%3A1"), ("127.0.0.1", head, "203.0.113.5")):
        assert await source(store, (address, receiver.port), before) == f"/forward/{name}"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(receiver.address)
        probe.send(b"\0")
        probe.settimeout(PATIENCE)
        with pytest.raises(ConnectionRefusedError):
            probe.recv(1)
