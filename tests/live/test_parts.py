"""What parts answer about themselves, and the figures that follow."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from headrace_cli.operating import exposition
from headrace_cli.operating.exposition import Scrape, Scraper, parts_of
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.protocol import installed
from headrace_lake.upkeep.metrics import LakeMetrics


def test_every_metric_that_it_reads_exists() -> None:
    declared = {row.name for metrics in (ReceiverMetrics(), LakeMetrics()) for row in metrics.table()}
    declared |= {row.name for protocol in installed() for row in protocol.own_metrics()}
    read = set()
    root = Path(__file__).parents[2]
    for path in (root / "live").rglob("*.py"):
        read |= {word for word in path.read_text().split('"') if word.startswith("headrace_") and word.isidentifier()}
    read = {name for name in read if not name.startswith(("headrace_cli", "headrace_live"))}
    assert len(read) > 8
    assert read - declared == set()


Answering = tuple[str, dict[str, tuple[int, str]]]


@pytest.fixture
async def part() -> AsyncIterator[Answering]:
    """A part's address, and what it answers."""
    metrics = ReceiverMetrics()
    metrics.connections.set(5)
    answers = {
        "/metrics": (200, "# more than arrives at once\n" * 40_000 + metrics.exposition().decode()),
        "/readyz": (200, "ok\n"),
    }

    async def answer(request: web.Request) -> web.Response:
        status, text = answers.get(request.path, (404, ""))
        return web.Response(status=status, text=text)

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    async with TestServer(application) as server:
        yield f"http://127.0.0.1:{server.port}", answers


async def asked(*urls: str) -> list[Scrape]:
    scraper = Scraper()
    found = await scraper.look([("courier", url) for url in urls])
    await scraper.close()
    return found


@pytest.mark.parametrize(
    ("answers", "ready", "said"),
    [
        ({}, True, ""),
        ({"/readyz": (503, "kafka is away\n")}, False, "kafka is away"),
        ({"/metrics": (500, "")}, False, "/metrics answers 500"),
        ({"/metrics": (200, "a b c d")}, False, "/metrics cannot be read"),
        ({"/metrics": (200, "other 1\n")}, True, ""),
    ],
)
async def test_what_a_part_answers_is_told(
    part: Answering, answers: dict[str, tuple[int, str]], ready: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # it stands between them, and is not asked
    monkeypatch.setenv("no_proxy", "")
    url, told = part
    told.update(answers)
    found, nowhere = await asked(url, f"{url}/p\u00e4d")
    assert nowhere.problem
    assert (found.service, found.ready) == ("courier", ready)
    assert answers or found.total("headrace_connections") == 5
    problems = "".join([found.problem, *found.notes])
    assert said in problems
    assert bool(said) is bool(problems)


async def test_one_that_hangs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (found,) = await asked(f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert found.problem == "does not answer in time"


async def test_a_name_is_every_address_that_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = [(0, 0, 0, "", (address, 1)) for address in ("10.0.0.2", "10.0.0.1", "fd00::1")]
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", AsyncMock(return_value=known))
    found = await parts_of(tmp_path, ["forward=dns://headrace-forward-ops:8080", "lake=http://10.1.1.1:1"])
    forward = [("forward", f"http://{host}:8080") for host in ("10.0.0.1", "10.0.0.2", "[fd00::1]")]
    assert found == [*forward, ("lake", "http://10.1.1.1:1")]
    monkeypatch.undo()
    found = await parts_of(tmp_path, ["nowhere=dns://nowhere.invalid:8080"])
    assert found == [("nowhere", "http://nowhere.invalid:8080")], "it is shown"
