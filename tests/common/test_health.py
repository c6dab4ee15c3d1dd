"""The operations port: half-open requests in any number, and slow ones; and the command that asks it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from headrace_common.operations.health import HEAD_BYTES, MOST_OPEN, OpsServer
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import OpsSettings

from tests.contract.waiting import PATIENCE

WELL: Any = SimpleNamespace(live_problems=list, ready_problems=list, collect=lambda: None)


@pytest.fixture
async def server() -> AsyncIterator[OpsServer]:
    server = OpsServer(OpsSettings(host="127.0.0.1", port=0), WELL, ReceiverMetrics())
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


async def test_half_open_requests_always_leave_room_for_a_probe(server: OpsServer) -> None:
    crowd = []
    for _ in range(4 * MOST_OPEN):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n")
        crowd.append((reader, writer))
    assert (await ask(server, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    assert len(server._open) <= MOST_OPEN
    for _, writer in crowd:
        writer.transport.abort()


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET /livez?probe=1 HTTP/1.1", 200),
        (b"GET /readyz HTTP/1.0", 200),
        (b"HEAD /metrics HTTP/1.1", 200),
        (b"GET /livez/ HTTP/1.1", 404),
        (b"POST /livez HTTP/1.1", 400),
        (b"\x16\x03", 400),
        (b"GET  /livez HTTP/1.1", 400),
        (b"GET /liv\xffez HTTP/1.1", 400),
        (b"GET /livez", 400),
        (b"GET /livez HTTP/1.0\r\nX: ".ljust(HEAD_BYTES - 30, b"x"), 200),
        (b"GET /livez HTTP/1.0\r\nX: ".ljust(HEAD_BYTES, b"x"), 400),
    ],
)
async def test_which_requests_are_answered(server: OpsServer, line: bytes, status: int) -> None:
    answer = await ask(server, line + b"\r\nHost: localhost\r\n\r\n")
    assert int(answer.split()[1]) == status
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"server:" not in head.lower()
    length = int(head.partition(b"Content-Length: ")[2].split()[0])
    assert length > 0
    assert len(body) == (0 if line.startswith(b"HEAD") else length)


@pytest.mark.parametrize(
    ("problems", "status", "text"), [([], b"200", b"ok\n"), (["draining", "kafka"], b"503", b"draining\nkafka\n")]
)
async def test_it_says_what_the_part_says(problems: list[str], status: bytes, text: bytes) -> None:
    part: Any = SimpleNamespace(ready_problems=lambda: problems)
    server = OpsServer(OpsSettings(host="::", port=0), part, ReceiverMetrics())
    await server.start()
    answer = await ask(server, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.split()[1] == status
    assert answer.endswith(b"\r\n\r\n" + text)
    await server.stop()
