"""The page in a real Chromium, over a service whose Kafka stops and starts as the test says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from aiohttp.test_utils import TestServer
from headrace_cli.operating.exposition import Scrape
from headrace_live.looks import Look, TablesLook
from headrace_live.server import LiveServer, allowed_names
from headrace_live.service import LiveService

from tests.live.chromium import Page, browser
from tests.live.seen import UNIX, away, kafka, lake, receiver

pytestmark = [pytest.mark.requires("chromium"), pytest.mark.long, pytest.mark.timeout(600)]

NASTY = '<img src=x onerror="document.title=1">'


async def no_parts() -> Sequence[tuple[str, str]]:
    return ()


class Scene:
    """What the page is shown: a service without collectors, and looks that a test makes up."""

    def __init__(self, url: str, service: LiveService) -> None:
        self.url = url
        self.service = service
        self.at = 0.0

    def show(self, *scrapes: Scrape, seconds: float = 1, down: str = "") -> None:
        self.at += seconds
        stored = 0 if down else int(100 * self.at)
        tables = TablesLook("", {"events": stored, "quarantine": 3}, UNIX)
        moved = [replace(scrape, at=self.at) for scrape in scrapes]
        look = Look(self.at, time.time(), moved, kafka(stored, problem=down, landed=stored), tables)
        self.service.figures = self.service._model.add(look)
        self.service._tell(self.service.state(history=False))


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    service = LiveService(no_parts, None, None)
    server = LiveServer(service, allowed_names("127.0.0.1", ()))
    async with TestServer(server.application()) as one:
        yield Scene(f"http://127.0.0.1:{one.port}/", service)
        await service.stop()


async def opened(page: Page, scene: Scene, *scrapes: Scrape) -> None:
    scene.show(*scrapes)
    await page.go(scene.url)
    await page.until("document.documentElement.dataset.drawn === 'yes'")


def text(selector: str) -> str:
    return f"document.querySelector({json.dumps(selector)}).textContent"


async def told(page: Page) -> list[str]:
    """What the browser complained of."""
    return [
        str(event["params"])
        for event in page.events
        if event["method"] in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
    ]


async def test_it_flows_stops_and_flows_again(scene: Scene) -> None:
    async with browser() as page:
        await page.show(1440, 900)
        await opened(page, scene, receiver(0), lake(0))
        for second in (1, 2, 3):
            scene.show(receiver(0, 700 * second), lake(0, 600 * second, last=time.time()))
        await page.until(f"{text('.receiver .rate')}.startsWith('7')")
        assert await page.evaluate("document.querySelector('#verdict').className") == "verdict good"
        assert await page.evaluate("document.querySelectorAll('#flows .gate.shut').length") == 0
        waits: dict[str, Any] = {"headrace_frames_pending": 50.0, "headrace_oldest_pending_seconds": 12.0}
        scene.show(receiver(0, 2100, **waits), lake(0, 1800), down="it does not answer")
        await page.until(f"{text('#title')}.startsWith('Kafka has stored nothing for 12 s: 50 frames wait.')")
        assert await page.evaluate("document.querySelector('#verdict').className") == "verdict bad"
        assert await page.evaluate("document.querySelectorAll('#flows .gate.shut').length") == 1
        assert await page.evaluate(text("#kafka-state")) == "Stopped: stores nothing"
        scene.show(receiver(0, 2800), lake(0, 1800, last=time.time()))
        await page.until(f"{text('#title')}.startsWith('Kafka has been storing again')")
        assert await page.evaluate("document.querySelectorAll('.chart rect').length") >= 8
        assert await told(page) == []
        asked = {
            event["params"]["request"]["url"] for event in page.events if event["method"] == "Network.requestWillBeSent"
        }
        assert {url for url in asked if not url.startswith(scene.url)} == set()


async def test_what_clients_send_is_text(scene: Scene) -> None:
    async with browser() as page:
        await page.show(1440, 900)
        await opened(page, scene, receiver(0, service=NASTY), receiver(0, service="courier", ready=False))
        await page.until(f"{text('main')}.includes({json.dumps(NASTY)})")
        assert await page.evaluate("document.querySelectorAll('main img').length") == 0
        assert await told(page) == []


WIDTHS = (320, 390, 768, 1024, 1200, 1280, 1440, 1920)


@contextlib.asynccontextmanager
async def crowded(scene: Scene, dark: bool) -> AsyncIterator[Page]:
    """The page with all that it may show, and texts as long as they may be."""
    services = ("forward", "lumberjack", "courier", "logjam", "segment")
    parts = [receiver(0, service=name, url=f"http://{name}.receivers.example.org:8080/") for name in services]
    async with browser() as page:
        await page.show(1440, 844, dark=dark)
        await opened(page, scene, *parts, lake(0), away(0, service="forward", url="http://gone.example.org:1"))
        for _ in range(3):
            scene.show(*parts, lake(0))
        yield page


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_it_fits_the_screen_and_can_be_read(scene: Scene, dark: bool) -> None:
    async with crowded(scene, dark) as page:
        for width in WIDTHS:
            await page.show(width, 844, dark=dark)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, width
            assert json.loads(await page.evaluate(STICKING_OUT)) == [], width


STICKING_OUT = """(() => {
  const clips = (n) => getComputedStyle(n).overflowX !== 'visible' || n.matches('.hidden, .skip');
  const bad = [];
  for (const node of document.querySelectorAll('main *, header *, footer *')) {
    if (node.closest('svg, .hidden, .skip') || !node.getClientRects().length) continue;
    const panel = node.parentElement.closest(
        '.race, .card, .table, .chart, #quarantine, #parts, .verdict, header, footer, main');
    let above = node.parentElement;
    while (above !== panel && !clips(above)) above = above.parentElement;
    if (above !== panel) continue;
    const [own, its] = [node.getBoundingClientRect(), panel.getBoundingClientRect()];
    if (own.right > its.right + 1 || own.left < its.left - 1) bad.push([node.id || node.className || node.tagName,
        panel.id || panel.className || panel.tagName, Math.round(own.right - its.right)]);
  }
  return JSON.stringify(bad.slice(0, 8));
})()"""
"""What is wider than the panel that it lies in."""


async def test_a_page_without_its_process_says_so_and_comes_back(scene: Scene) -> None:
    async with browser() as page:
        await page.show(1440, 900)
        await opened(page, scene, receiver(0))
        await page.call(
            "Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0
        )
        for viewer in list(scene.service._viewers):
            viewer.put_nowait(b"")
        await page.until("document.querySelector('#clock').className.includes('lost')")
        await page.call(
            "Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1
        )

        async def looks() -> None:
            while True:
                scene.show(receiver(0))
                await asyncio.sleep(0.2)

        looking = asyncio.create_task(looks())
        try:
            await page.until("!document.querySelector('#clock').className.includes('lost')")
        finally:
            looking.cancel()
