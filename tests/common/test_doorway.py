"""The operations port: half-open requests in any number, slow ones, and names that it does not know."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator

import pytest
from headrace_common.operations.health import doorway
from headrace_common.operations.health.doorway import CONNECTIONS, Doorway, is_known, own_names
from headrace_common.operations.health.http import Health, OpsServer
from headrace_common.operations.log import LibraryRepeats
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import OpsSettings
from headrace_common.operations.tasks import own_name

from tests.contract.waiting import PATIENCE


class Well(Health):
    def live_problems(self) -> list[str]:
        return []

    def ready_problems(self) -> list[str]:
        return []

    def notes(self) -> list[str]:
        return []

    def status(self) -> dict[str, str]:
        return {}

    def collect(self) -> None:
        pass


@pytest.fixture
async def server() -> AsyncIterator[OpsServer]:
    server = OpsServer(OpsSettings(host="127.0.0.1", port=0, hosts="ops.example.com"), "toy", Well(), ReceiverMetrics())
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
    server = OpsServer(OpsSettings(host="::", port=0), "toy", Well(), ReceiverMetrics())
    await server.start()
    try:
        assert (await ask(server, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    finally:
        await server.stop()


@pytest.mark.parametrize("sent", [b"GET /livez HTTP/1.1\r\nHost: localhost", b"GET / HT", b"\x16\x03"])
async def test_no_answer_tells_a_version(server: OpsServer, sent: bytes) -> None:
    answer = (await ask(server, sent + b"\r\n\r\n")).lower()
    assert answer
    assert b"aiohttp" not in answer
    assert b"python" not in answer


async def test_requests_that_are_no_http_say_one_line(server: OpsServer) -> None:
    """Each showed a stack, as an error: who can reach the port could fill the disk."""
    lines: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = lines.append  # type: ignore[method-assign]
    handler.addFilter(LibraryRepeats())
    logging.getLogger("aiohttp").addHandler(handler)
    try:
        for number in range(20):
            request = b"GET / HTTP/1.1\r\nHost: localhost\r\nno header %d\r\n\r\n" % number
            assert (await ask(server, request)).startswith(b"HTTP/1.0 400 ")
    finally:
        logging.getLogger("aiohttp").removeHandler(handler)
    assert len(lines) <= 1
