"""A real Chromium without a window, driven over its debugging protocol."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp

PROGRAM: Final = "chromium"
PATIENCE: Final = 120.0


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.session = ""
        self.events: list[dict[str, Any]] = []
        self.loaded = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            told = message.json()
            waiting = self._answers.pop(told.get("id", 0), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(told)
            elif waiting is None:
                self.events.append(told)
                if told["method"] == "Page.loadEventFired":
                    self.loaded.set()

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        request = {"id": number, "method": method, "params": parameters}
        await self._socket.send_json({**request, "sessionId": self.session} if self.session else request)
        answer = await asyncio.wait_for(self._answers[number], PATIENCE)
        assert "error" not in answer, answer
        return answer["result"]

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        told = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Wait until an expression is true; return it."""
        text = f"new Promise(done => {{const look = () => {{const found = {expression}; if (found) done(found);"
        return await self.evaluate(f"{text} else setTimeout(look, 20);}}; look();}})")

    async def show(self, width: int, height: int, *, dark: bool = False, still: bool = True) -> None:
        """Be a screen of this size."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        features += [{"name": "prefers-reduced-motion", "value": "reduce"}] if still else []
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def go(self, url: str) -> None:
        """Open a page, and wait until its scripts have run."""
        self.loaded.clear()
        await self.call("Page.navigate", url=url)
        await asyncio.wait_for(self.loaded.wait(), PATIENCE)

    async def close(self) -> None:
        self._reading.cancel()
        await self._socket.close()


@contextlib.asynccontextmanager
async def browser() -> AsyncIterator[Page]:
    """Start Chromium, and end it and all that it started."""
    program = shutil.which(PROGRAM)
    assert program is not None
    folder = Path(tempfile.mkdtemp(prefix="headrace-chromium-"))
    process = await asyncio.create_subprocess_exec(
        program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--remote-debugging-port=0",
        f"--user-data-dir={folder}", "about:blank",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        port = folder / "DevToolsActivePort"
        async with asyncio.timeout(PATIENCE):
            while not (port.exists() and len(port.read_text().splitlines()) == 2):
                assert process.returncode is None, f"{PROGRAM} ended with {process.returncode}"
                await asyncio.sleep(0.05)
        number, path = port.read_text().splitlines()
        async with (
            aiohttp.ClientSession() as client,
            client.ws_connect(f"ws://127.0.0.1:{number}{path}", max_msg_size=0) as socket,
        ):
            page = Page(socket)
            target = await page.call("Target.createTarget", url="about:blank")
            attached = await page.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
            page.session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                await page.call(f"{domain}.enable")
            try:
                yield page
            finally:
                await page.close()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        await process.wait()
        shutil.rmtree(folder, ignore_errors=True)
