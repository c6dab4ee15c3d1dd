"""The page in a real Chromium: what it draws of a state, and in which words."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp.test_utils import TestServer
from headrace_cli.operating.exposition import Scrape
from headrace_live.looks import Look, TablesLook
from headrace_live.server import LiveServer, allowed_names
from headrace_live.service import LiveService

from tests.live.seen import UNIX, kafka, lake, no_parts, receiver

pytestmark = [pytest.mark.requires("chromium"), pytest.mark.long, pytest.mark.timeout(600)]

NASTY = '<img src=x onerror="document.title=1">'
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--window-size=1440,900"),
    *("--virtual-time-budget=3000", "--dump-dom"),
)


@pytest.fixture
def service() -> LiveService:
    """One without collectors: it is shown looks that the test makes up."""
    return LiveService(no_parts, None, None)


@pytest.fixture
async def url(service: LiveService) -> AsyncIterator[str]:
    async with TestServer(LiveServer(service, allowed_names("127.0.0.1", ())).application()) as one:
        yield f"http://127.0.0.1:{one.port}/"
        await service.stop()


async def drawn(url: str) -> str:
    """Returns the document that Chromium has made of a page after three seconds of its own time."""
    done = await asyncio.to_thread(subprocess.run, ("chromium", *OPTIONS, url), capture_output=True, text=True)
    return done.stdout


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


async def test_it_flows_and_stops_and_what_clients_send_is_text(
    service: LiveService, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for second in range(4):
        show(service, second, receiver(0, 700 * second), lake(0, 600 * second, last=time.time()))
    page = await drawn(url)
    assert seen(page, "title").startswith("7")
    assert 'class="verdict good"' in page
    assert "gate shut" not in page
    stopped = receiver(0, 2100, service=NASTY, headrace_frames_pending=50.0, headrace_oldest_pending_seconds=12.0)
    show(service, 4, stopped, lake(0, 1800), down="it does not answer")
    page = await drawn(url)
    assert seen(page, "title").startswith("Kafka has stored nothing for 12 s: 50 frames wait.")
    assert "Stopped: stores nothing" in page
    assert 'class="verdict bad"' in page
    assert page.count("gate shut") == 1
    assert "&lt;img src=x onerror=" in page
    assert "<img src=x" not in page
    assert "<title>1</title>" not in page
    monkeypatch.setattr(service, "state", lambda _: b"")
    page = await drawn(url)
    assert 'class="clock lost"' in page
    assert seen(page, "clock") == "no connection to the page's process"
