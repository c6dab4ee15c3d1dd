"""The page in a real Chromium: what it draws of a state, and in which words."""

from __future__ import annotations

import asyncio
import re
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


class Scene:
    """What the page is shown: a service without collectors, and looks that a test makes up."""

    def __init__(self, url: str, service: LiveService) -> None:
        self.url = url
        self.service = service
        self.at = 0.0

    def show(self, *scrapes: Scrape, down: str = "") -> None:
        self.at += 1
        stored = 0 if down else int(100 * self.at)
        tables = TablesLook("", {"events": stored, "quarantine": 3}, UNIX)
        moved = [replace(scrape, at=self.at) for scrape in scrapes]
        look = Look(self.at, time.time(), moved, kafka(stored, problem=down, landed=stored), tables)
        self.service.figures = self.service._model.add(look)

    async def drawn(self) -> str:
        """Returns the document that Chromium has made of a page after three seconds of its own time."""
        command = ("chromium", *OPTIONS, self.url)
        pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.DEVNULL}
        process = await asyncio.create_subprocess_exec(*command, **pipes)  # type: ignore[arg-type]
        return (await process.communicate())[0].decode()


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    service = LiveService(no_parts, None, None)
    server = LiveServer(service, allowed_names("127.0.0.1", ())).application()
    async with TestServer(server) as one:
        yield Scene(f"http://127.0.0.1:{one.port}/", service)
        await service.stop()


def seen(page: str, name: str) -> str:
    """The text of the element of this id."""
    found = re.search(rf'id="{name}"[^>]*>([^<]*)<', page)
    assert found is not None, page
    return found[1]


async def test_it_flows_and_stops_and_what_clients_send_is_text(scene: Scene) -> None:
    for second in range(4):
        scene.show(receiver(0, 700 * second), lake(0, 600 * second, last=time.time()))
    page = await scene.drawn()
    assert seen(page, "title").startswith("7")
    assert 'class="verdict good"' in page
    assert "gate shut" not in page
    waits = {"headrace_frames_pending": 50.0, "headrace_oldest_pending_seconds": 12.0}
    stopped = receiver(0, 2100, service=NASTY, **waits)  # type: ignore[arg-type]
    scene.show(stopped, lake(0, 1800), down="it does not answer")
    page = await scene.drawn()
    assert seen(page, "title").startswith("Kafka has stored nothing for 12 s: 50 frames wait.")
    assert "Stopped: stores nothing" in page
    assert 'class="verdict bad"' in page
    assert page.count("gate shut") == 1
    assert "&lt;img src=x onerror=" in page
    assert "<img src=x" not in page
    assert "<title>1</title>" not in page


async def test_a_page_without_its_process_says_so(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.show(receiver(0))
    monkeypatch.setattr(scene.service, "state", lambda _: b"")
    page = await scene.drawn()
    assert 'class="clock lost"' in page
    assert seen(page, "clock") == "no connection to the page's process"
