"""The page over HTTP and in a real Chromium, and what the parts that it asks answer about themselves."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from headrace_cli.__main__ import app
from headrace_cli.ground import CommandError
from headrace_cli.operating import exposition
from headrace_cli.operating.exposition import Scrape, Scraper, parts_of
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import KafkaSettings
from headrace_common.protocol import installed
from headrace_lake.upkeep.metrics import LakeMetrics
from headrace_live import tables
from headrace_live.broker import KafkaWatch
from headrace_live.looks import Look, TablesLook
from headrace_live.server import HEADERS, LiveServer, allowed_names, is_loopback, name_of
from headrace_live.service import LiveService
from typer.testing import CliRunner

from tests.cli.operating.topics import event_headers, put
from tests.contract.waiting import until
from tests.lake.test_query import make
from tests.live.seen import UNIX, kafka, lake, look, no_parts, receiver

Client = TestClient[web.Request, web.Application]


@pytest.fixture
def service() -> LiveService:
    return LiveService(no_parts, None, None)


@pytest.fixture
async def page(service: LiveService) -> AsyncIterator[Client]:
    serving = LiveServer(service, allowed_names("127.0.0.1", ()))
    async with TestClient(TestServer(serving.application())) as client:
        yield client


PATHS = ("/", "/page.css", "/page.js", "/icon.svg", "/state.json", "/livez")


async def test_it_is_read_only_and_allows_nothing_from_elsewhere(page: Client) -> None:
    for path in (*PATHS, "/none"):
        answer = await page.get(path)
        assert answer.status == (404 if path == "/none" else 200)
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert not {"Server", "Access-Control-Allow-Origin"} & answer.headers.keys()
    policy = HEADERS["Content-Security-Policy"]
    assert policy.startswith(
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self';"
    )
    assert "unsafe" not in policy
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert {(await page.request(method, path)).status for path in PATHS} == {405}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("127.0.0.1:8080", 200), ("LOCALHOST:1", 200), ("[::1]:8080", 200), ("localhost.", 200),
        ("evil.example", 421), ("evil.example:8080", 421), ("127.0.0.1.evil.example", 421), ("10.0.0.1", 421), ("", 421),
    ],
)  # fmt: skip
async def test_names_of_other_sites_are_refused(page: Client, host: str, status: int) -> None:
    assert {(await page.get(path, headers={"Host": host})).status for path in PATHS} == {status}


def test_which_names_are_allowed() -> None:
    assert allowed_names("::1", ["Live.Example ", ""]) == frozenset({"localhost", "127.0.0.1", "::1", "live.example"})
    assert allowed_names("0.0.0.0", ["live.example"]) == frozenset({"live.example"})
    assert allowed_names("0.0.0.0", []) is None
    assert all(is_loopback(host) for host in ("127.9.9.9", "localhost", "::1"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "10.0.0.1", "x"))
    assert [name_of(host) for host in ("a:1", "a", "[::1]:8", "[::1]", "::1")] == ["a", "a", "::1", "::1", ":"]


async def test_a_page_is_told_what_it_does_not_know_yet(page: Client, service: LiveService) -> None:
    assert await (await page.get("/state.json")).json() == {}
    for at in range(3):
        service.figures = service._model.add(look(at, receiver(at, at)))
    told = await (await page.get("/state.json")).json()
    assert len(told["history"]) == 3
    assert service.watched
    later = await (await page.get(f"/state.json?since={told['history'][0]['time']}")).json()
    assert later["history"] == told["history"][1:]
    assert (await page.get("/state.json?since=x")).status == 400


async def test_a_task_that_ended_by_a_bug_is_not_live(page: Client, service: LiveService) -> None:
    service._finder = AsyncMock(side_effect=RuntimeError("a bug"))
    service.start()
    await until(lambda: bool(service.failed()), "the end")
    assert service.failed() == "RuntimeError('a bug')", "the tables, which nobody has named, are not asked"
    assert (await page.get("/livez")).status == 503
    await service.stop()


def test_a_port_that_is_taken_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("aiokafka")
    monkeypatch.setattr(logger, "propagate", logger.propagate)
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        result = CliRunner().invoke(app, ["live", "--url", "x=http://127.0.0.1:1", "--port", str(port)])
    assert isinstance(result.exception, CommandError), result.output
    assert str(result.exception) == f"--port {port}: Address already in use."
    assert logger.isEnabledFor(logging.WARNING), "the page says why Kafka does not answer as these warnings explain it"


def test_missing_tables_are_a_problem_and_no_error(tmp_path: Path) -> None:
    assert "There are no tables" in tables.look(tmp_path).problem
    make(tmp_path)
    assert tables.look(tmp_path).rows == {"events": 0, "quarantine": 0}, "they have just been made"


@pytest.mark.kafka
async def test_kafka_says_where_its_partitions_end(topics: KafkaSettings) -> None:
    await asyncio.to_thread(put, topics, topics.events_topic, [(b"{}", event_headers(number)) for number in range(2)])
    watch = KafkaWatch(topics, group="headrace")
    found = await watch.look()
    await watch.close()
    assert (found.problem, found.brokers, found.missing) == ("", 1, ())
    assert {(each.topic, each.end) for each in found.partitions} >= {
        (topics.events_topic, 2),
        (topics.quarantine_topic, 0),
    }
    assert {(each.in_sync, each.landed) for each in found.partitions} == {(1, None)}
    away = KafkaWatch(topics.model_copy(update={"bootstrap_servers": "127.0.0.1:1"}), group="headrace")
    assert (await away.look()).problem


NASTY = '<img src=x onerror="document.title=1">'
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--window-size=1440,900"),
    *("--virtual-time-budget=3000", "--dump-dom"),
)


async def drawn(url: str) -> str:
    """Returns the document that Chromium has made of a page after three seconds of its own time."""
    done = await asyncio.to_thread(subprocess.run, ("chromium", *OPTIONS, url), capture_output=True, text=True)
    return done.stdout.replace("&nbsp;", " ")


def seen(page: str, name: str) -> str:
    """The text of the element of this id."""
    found = re.search(rf'id="{name}"[^>]*>([^<]*)<', page)
    assert found is not None, page
    return found[1]


def show(service: LiveService, at: int, *scrapes: Scrape, down: str = "") -> None:
    stored = 0 if down else 100 * at
    tables = TablesLook("", {"events": stored, "quarantine": 3}, UNIX)
    moved = [replace(scrape, at=float(at)) for scrape in scrapes]
    look = Look(at, time.time(), moved, kafka(stored, problem=down, landed=stored), tables)
    service.figures = service._model.add(look)


@pytest.mark.requires("chromium")
@pytest.mark.long
async def test_it_flows_and_stops_and_what_clients_send_is_text(
    service: LiveService, page: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(page.make_url("/"))
    for second in range(4):
        show(service, second, receiver(0, 700 * second), lake(0, 600 * second, last=time.time()))
    said = await drawn(url)
    assert seen(said, "title").startswith("7")
    assert 'class="verdict good"' in said
    assert "gate shut" not in said
    stopped = receiver(0, 2100, service=NASTY, headrace_frames_pending=50.0, headrace_oldest_pending_seconds=12.0)
    show(service, 4, stopped, lake(0, 1800), down="it does not answer")
    said = await drawn(url)
    assert seen(said, "title").startswith("Kafka has stored nothing for 12 s: 50 frames wait.")
    assert "Stopped: stores nothing" in said
    assert 'class="verdict bad"' in said
    assert said.count("gate shut") == 1
    assert "&lt;img src=x onerror=" in said
    assert "<img src=x" not in said
    assert "<title>1</title>" not in said
    monkeypatch.setattr(service, "state", lambda _: b"")
    said = await drawn(url)
    assert 'class="clock lost"' in said
    assert seen(said, "clock") == "no connection to the page's process"


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
