"""The operations port: half-open requests in any number, slow ones, and names that it does not know."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import h11
import pytest
from headrace_common.operations.health import doorway
from headrace_common.operations.health.doorway import CONNECTIONS, Doorway, is_known, own_names
from headrace_common.operations.health.exchange import MOST, Exchange, HttpAnswer, refusal
from headrace_common.operations.health.http import OpsServer
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import OpsSettings
from headrace_common.operations.tasks import own_name

from tests.common.test_secured import Socket
from tests.contract.waiting import PATIENCE

WELL: Any = SimpleNamespace(live_problems=list, ready_problems=list, notes=list, status=dict, collect=lambda: None)


@pytest.fixture
async def server() -> AsyncIterator[OpsServer]:
    server = OpsServer(OpsSettings(host="127.0.0.1", port=0, hosts="ops.example.com"), "toy", WELL, ReceiverMetrics())
    await server.start()
    yield server
    await server.stop()


async def ask(server: OpsServer, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    async with asyncio.timeout(PATIENCE):
        answer = await reader.read()
    writer.close()
    return answer


async def test_half_open_requests_in_any_number_leave_room_for_a_probe(server: OpsServer) -> None:
    crowd = []
    for _ in range(4 * CONNECTIONS):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n")
        crowd.append((reader, writer))
    assert (await ask(server, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    assert len(server._doorway._open) <= CONNECTIONS
    for _, writer in crowd:
        writer.transport.abort()


async def test_a_request_that_does_not_end_is_closed(server: OpsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorway, "TIME", 0.05)
    assert await ask(server, b"GET /livez HTTP/1.1\r\nHost: loc") == b""


async def test_an_answer_that_is_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is closing by then, so that another that came ended its time limit: it stayed for as long as its client."""
    monkeypatch.setattr(doorway, "TIME", 0.3)
    lost = asyncio.Semaphore(0)

    class Server(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.WriteTransport)
            transport.write(bytes(16 << 20))
            transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            lost.release()

    door = Doorway(())
    port = door.open("127.0.0.1", 0, Server)
    with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
        async with asyncio.timeout(PATIENCE):
            await lost.acquire()
            await lost.acquire()
    await door.close()


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("127.0.0.1:8080", True),
        ("10.1.2.3", True),
        ("[::1]:8080", True),
        ("[fe80::1]", True),
        ("localhost:8080", True),
        ("forward:8080", True),
        ("headrace-forward-ops.logs.svc:8080", True),
        ("headrace-forward-ops.logs.svc.cluster.local", True),
        ("ops.example.com:8080", True),
        ("OPS.example.com.", True),
        ("evil.example.com:8080", False),
        ("127.0.0.1.evil.example", False),
        ("svc.evil.example", False),
        ("ops.example.com.evil.example", False),
    ],
)
async def test_which_names_are_answered(server: OpsServer, host: str, known: bool) -> None:
    answer = await ask(server, f"GET /livez HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert answer.split()[1] == (b"200" if known else b"421")


def test_this_machine_is_known_by_its_names() -> None:
    assert is_known(f"{socket.gethostname()}:8080", own_names())
    assert is_known(socket.getfqdn(), own_names())


@pytest.mark.parametrize("name", ["a" * 64, "a..b", "b\udcff", ""])
def test_a_machine_may_have_a_name_that_no_resolver_takes(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Linux takes 64 letters, or any bytes: nothing started there."""
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    assert is_known(name or "localhost", own_names())
    assert own_name().encode()


async def test_all_addresses_are_those_of_ipv4_too() -> None:
    """Where clients connect, it was so; here the images' health check, which asks 127.0.0.1, was refused."""
    server = OpsServer(OpsSettings(host="::", port=0), "toy", WELL, ReceiverMetrics())
    await server.start()
    try:
        assert (await ask(server, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    finally:
        await server.stop()


async def test_no_answer_tells_a_version(server: OpsServer) -> None:
    for sent in (b"GET /livez HTTP/1.1\r\nHost: localhost", b"GET / HT", b"\x16\x03"):
        head = (await ask(server, sent + b"\r\n\r\n")).lower()
        assert head.startswith(b"http/1.1 ")
        assert b"server:" not in head


async def test_requests_that_are_no_http_are_refused_and_say_nothing(
    server: OpsServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Who can reach the port could fill the disk."""
    for number in range(20):
        request = b"GET / HTTP/1.1\r\nHost: localhost\r\nno header %d\r\n\r\n" % number
        assert (await ask(server, request)).startswith(b"HTTP/1.1 400 ")
    assert not caplog.records


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET /livez?probe=1 HTTP/1.1", 200),
        (b"GET /readyz HTTP/1.0", 200),
        (b"HEAD /metrics HTTP/1.1", 200),
        (b"GET /livez/ HTTP/1.1", 404),
        (b"POST /livez HTTP/1.1", 501),
        (b"GET  /livez HTTP/1.1", 400),
        (b"GET /liv\xffez HTTP/1.1", 400),
        (b"GET /livez", 400),
    ],
)
async def test_which_requests_are_answered(server: OpsServer, line: bytes, status: int) -> None:
    answer = await ask(server, line + b"\r\nHost: localhost\r\n\r\n")
    assert int(answer.split()[1]) == status
    head, _, body = answer.partition(b"\r\n\r\n")
    length = int(head.partition(b"Content-Length: ")[2].split()[0])
    assert length > 0
    assert len(body) == (0 if line.startswith(b"HEAD") else length)


async def test_a_client_of_http_1_0_names_no_host_and_none_names_two(server: OpsServer) -> None:
    assert (await ask(server, b"GET /livez HTTP/1.0\r\n\r\n")).split()[1] == b"200"
    two = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nhOsT: evil.example.com\r\n\r\n"
    assert (await ask(server, two)).split()[1] == b"400"


async def test_a_head_may_come_byte_by_byte_and_has_a_largest_size(server: OpsServer) -> None:
    begun = b"GET /livez HTTP/1.0\r\nX: "
    assert (await ask(server, begun.ljust(MOST - 4, b"x") + b"\r\n\r\n")).split()[1] == b"200"
    assert (await ask(server, begun.ljust(MOST + 1, b"x"))).split()[1] == b"431"
    answers: list[bytes] = []

    def answer(request: h11.Request, _: asyncio.BaseTransport) -> HttpAnswer:
        answers.append(request.target)
        return refusal(HTTPStatus.NOT_FOUND)

    exchange, transport = Exchange(answer), Socket()
    exchange.connection_made(transport)
    for byte in b"GET /x HTTP/1.1\r\nHost: a\r\n\r\nGET /y HTTP/1.1\r\n\r\n":
        exchange.data_received(bytes((byte,)))
    assert answers == [b"/x"]
    assert transport.written.count(b"HTTP/1.1 404 ") == 1
