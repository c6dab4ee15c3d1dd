"""Which processes there are, and what they answer: each is asked by itself, so that one that hangs holds up nobody."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Final

import aiohttp

from headrace_cli.ground import CommandError
from headrace_cli.operating.exposition import (
    MOST_BYTES,
    SECONDS,
    Answer,
    Scrape,
    name_on,
    named,
    parts_of,
    read,
)

Parts = Sequence[tuple[str, str]]
"""Names and addresses; a name is empty if nobody has said it."""
Finder = Callable[[], Awaitable[Parts]]

LATE: Final = 0.8
"""A look takes no longer than this: who has not answered by then is shown as he was, until he is away."""
READY_EVERY: Final = 6
"""Only each sixth look asks `/readyz`, too, while the answer is that it is ready: it costs a third of `/metrics`."""
MOST: Final = 500
"""Most processes."""
_DNS: Final = re.compile(r"(?:([A-Za-z0-9_-]+)=)?dns://([A-Za-z0-9.-]+):([0-9]{1,5})")
_NUMBER: Final = re.compile(r"-[0-9]+$")


def finder(state: Path, urls: Sequence[str]) -> Finder:
    """Return who knows the parts: those of `urls`, or what the stack in `state` runs at the moment.

    ``NAME=dns://HOST:PORT`` is every address that the name has, asked again each time. Raises `CommandError` for what is no
    address.
    """
    if not urls:

        async def of_state() -> Parts:
            try:  # a receiver's processes are one service here
                return [(_NUMBER.sub("", name), url) for name, url in await asyncio.to_thread(parts_of, state, ())]
            except CommandError:
                return []

        return of_state
    for text in urls:
        if "dns:" in text and _DNS.fullmatch(text) is None:
            raise CommandError(f"--url {text}: expected NAME=dns://HOST:PORT.", status=2)
    names = [found for text in urls if (found := _DNS.fullmatch(text)) is not None]
    fixed = [named(text) for text in urls if _DNS.fullmatch(text) is None]

    async def of_urls() -> Parts:
        resolved = await asyncio.gather(*(_resolve(found[1] or found[2], found[2], int(found[3])) for found in names))
        return [*fixed, *(part for parts in resolved for part in parts)][:MOST]

    return of_urls


async def _resolve(service: str, host: str, port: int) -> Parts:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return [(service, f"http://{host}:{port}")]  # it is shown as what does not answer
    addresses = sorted({str(info[4][0]) for info in found})
    return [(service, f"http://[{each}]:{port}" if ":" in each else f"http://{each}:{port}") for each in addresses]


class Scraper:
    """Asks all parts for their metrics, over connections that stay open."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._latest: dict[str, Scrape] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._names: dict[str, str] = {}
        self._ready: dict[str, Answer] = {}
        self._count = 0

    async def look(self, parts: Parts) -> list[Scrape]:
        """Ask all of them, for `LATE` seconds at most."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=SECONDS), connector=aiohttp.TCPConnector(limit=0), trust_env=False
            )
        self._count += 1
        for service, url in parts:
            if url not in self._asking:
                task = asyncio.create_task(self._ask(service, url))
                self._asking[url] = task
                task.add_done_callback(lambda _, url=url: self._asking.pop(url, None))  # type: ignore[misc]
        waited_for = [self._asking[url] for _, url in parts if url in self._asking]
        if waited_for:
            await asyncio.wait(waited_for, timeout=LATE)
        urls = {url for _, url in parts}
        for known in (self._latest, self._names, self._ready):
            for url in [url for url in known if url not in urls]:
                del known[url]
        return [self._latest[url] for url in dict.fromkeys(url for _, url in parts) if url in self._latest]

    async def _ask(self, service: str, url: str) -> None:
        metrics = await self._get(f"{url}/metrics")
        at = monotonic()
        ready = self._ready.get(url, (0, ""))
        if metrics[0] == 200 and (ready[0] != 200 or self._count % READY_EVERY == 0):
            ready = self._ready[url] = await self._get(f"{url}/readyz")
        elif metrics[0] != 200:
            self._ready.pop(url, None)
        name = service or self._names.get(url, "")
        if not name and metrics[0] == 200:
            name = self._names[url] = name_on(await self._get(f"{url}/"))
        self._latest[url] = read(name or url.partition("://")[2], url, at, metrics, ready)

    async def _get(self, url: str) -> Answer:
        assert self._session is not None
        try:
            async with self._session.get(url, allow_redirects=False) as answer:
                text = await answer.content.read(MOST_BYTES) if answer.content_length is None else await answer.read()
                return answer.status, text.decode(errors="replace")
        except TimeoutError:
            return 0, "does not answer in time"
        except aiohttp.ClientConnectorError as error:
            return 0, f"does not answer ({error.os_error.strerror or type(error.os_error).__name__})"
        except (aiohttp.ClientError, OSError) as error:
            return 0, f"does not answer ({error or type(error).__name__})"

    async def close(self) -> None:
        for task in list(self._asking.values()):
            task.cancel()
        if self._session is not None:
            await self._session.close()
