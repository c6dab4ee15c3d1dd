"""The service itself, over sockets: every edge input, the other ways in, and who may come."""

from __future__ import annotations

import socket
import struct
import uuid
from pathlib import Path

import msgpack
import pytest
from headrace_common.listening.proxy import SIGNATURE_V2
from headrace_common.operations.settings import KafkaSettings

from tests.contract.certificates import Authority
from tests.contract.receiver import Receivers
from tests.contract.stopping import stopped
from tests.contract.topic import events
from tests.contract.waiting import PATIENCE, until
from tests.forward.speaking import good, send, speaking

pytestmark = pytest.mark.kafka


async def sources(store: KafkaSettings, mark: str) -> list[str]:
    return [record["ce_source"] for record in await events(store, mark)]


async def test_heartbeats_by_udp_and_by_empty_connections(start: Receivers) -> None:
    receiver, keyed = await start(log={"level": "info"}), await start(forward={"shared_key": "k"})
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.settimeout(PATIENCE)
        for data in (b"\0", b"anything at all"):
            for each in (receiver, keyed):
                probe.sendto(data, each.address)
                assert probe.recvfrom(64) == (b"\0", each.address)
    with speaking(keyed.address) as client:  # only its heartbeats need no key
        client.send(good("x"))
        assert [client.said()[0] for _ in range(2)] == ["HELO", "PONG"]
        client.ends()
    for _ in range(20):
        with speaking(receiver.address):
            pass
    await until(lambda: receiver.metric("connections_opened_total"), "they were seen")
    send(receiver.address, "x")
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
    for address, source in (("::1", "/forward/%3A%3A1"), ("127.0.0.1", "/forward/127.0.0.1")):
        mark = uuid.uuid4().hex
        send((address, receiver.port), mark)
        assert await sources(store, mark) == [source]


async def arrive(store: KafkaSettings, mark: str, count: int) -> None:
    async def stored() -> bool:
        return len(await sources(store, mark)) == count

    await until(stored, f"{count} are stored")


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
    for name, (head, source) in PROXIED.items():
        mark = uuid.uuid4().hex
        with speaking(receiver.address) as client:
            client.send(head + good(mark))  # in one segment: not a byte too many may be taken
            client.acknowledges("good")
        assert await sources(store, mark) == [f"/forward/{source}"], name
    with speaking(receiver.address) as client:  # no header
        client.send(good("x"))
        client.ends()
    await until(lambda: receiver.lines("proxy header refused"), "it is told of")
    with speaking(receiver.address):  # a balancer's health check
        pass
    hasty = await start(listen={"trusted_proxies": "127.0.0.0/8"}, limits={"handshake_time": 1})
    with speaking(hasty.address) as client:  # half a header
        client.send(b"PROXY TCP4 203")
        client.ends()
    await until(lambda: hasty.lines("handshake took too long"), "its time is up")
    assert await hasty.metric("limit_hits_total", limit="LIMITS__HANDSHAKE_TIME") == 1
    assert await receiver.metric("limit_hits_total", limit="LIMITS__HANDSHAKE_TIME") == 0
    far, mark = await start(listen={"trusted_proxies": "192.0.2.0/24"}), uuid.uuid4().hex
    send(far.address, mark)
    assert await sources(store, mark) == ["/forward/127.0.0.1"]
    with speaking(far.address) as client:  # nobody else may claim an address
        client.send(PROXIED["v1"][0])
        client.ends()


async def test_over_tls_a_client_that_only_writes_loses_nothing(
    start: Receivers, store: KafkaSettings, tmp_path: Path
) -> None:
    """Session tickets that it never reads would turn its close into a reset, and what is on its way would be thrown away."""
    authority = Authority(tmp_path)
    cert, key = authority.issue("server", "server")
    receiver = await start(tls={"cert": cert, "key": key})
    mark = uuid.uuid4().hex
    with speaking(receiver.address, authority.context()) as client:
        client.send(msgpack.packb(["t", 1, {"mark": mark}]))
        await arrive(store, mark, 1)  # the handshake is over
        with stopped(receiver.pid):
            client.socket.setsockopt(
                socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20
            )  # part of it waits at the client's end
            pad = "x" * 250
            client.send(b"".join(msgpack.packb(["t", 1, {"mark": mark, "n": n, "pad": pad}]) for n in range(1000)))
            client.socket.close()
    await arrive(store, mark, 1001)
