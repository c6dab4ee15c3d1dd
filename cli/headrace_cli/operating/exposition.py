"""Asks parts of Headrace for their metrics and their readiness over HTTP."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

import aiohttp
from headrace_common.operations.metrics import TOP_SOURCES
from prometheus_client.parser import text_string_to_metric_families

from headrace_cli.ground import CommandError
from headrace_cli.stack.state import StateFolder

SECONDS: Final = 3.0
"""Time that a part has for each answer."""
MOST_BYTES: Final = 16 * 1024 * 1024
MOST: Final = 500
"""Most processes."""
_DNS: Final = re.compile(r"dns://([A-Za-z0-9.-]+):([0-9]{1,5})")
_UNREAD: Final = ("#", "python_", "process_c", "process_v", "process_r", "process_o", "process_m")

Labels = tuple[tuple[str, str], ...]
Answer = tuple[int, str]
"""Status and text; status 0 with the reason without an answer."""
Parts = Sequence[tuple[str, str]]
"""Names and addresses."""


@dataclass(frozen=True)
class Scrape:
    """The answers of one part at a moment (`at`, in seconds of a clock that never goes back). `problem`: why it did not."""

    service: str
    url: str
    at: float
    ready: bool = False
    notes: Sequence[str] = ()
    values: Mapping[str, Mapping[Labels, float]] = field(default_factory=dict)
    problem: str = ""

    def has(self, name: str) -> bool:
        return name in self.values

    def total(self, name: str) -> float:
        """Return the sum over all labels; 0 if it is not there."""
        return sum(self.values.get(name, {}).values())

    def most(self, name: str) -> float | None:
        """Return the largest over all labels."""
        return max(self.values.get(name, {}).values(), default=None)

    def buckets(self, name: str) -> dict[float, float]:
        """Return a histogram's counts by upper bound, as the exposition has them: cumulative."""
        found = self.values.get(f"{name}_bucket", {})
        return {float(dict(labels)["le"]): count for labels, count in found.items()}


@dataclass(frozen=True)
class BusySource:
    """What a source has sent to a receiver in the last minute."""

    service: str
    source: str
    events: int
    bytes: int


def busiest(scrapes: Iterable[Scrape]) -> list[BusySource]:
    """Return the ten sources that sent most events, over all replicas."""
    sums: dict[tuple[str, str], list[float]] = {}
    for scrape in scrapes:
        for index, name in enumerate(("headrace_top_source_events", "headrace_top_source_bytes")):
            for labels, value in scrape.values.get(name, {}).items():
                sums.setdefault((scrape.service, dict(labels)["source"]), [0, 0])[index] += value
    found = [BusySource(*who, int(events), int(size)) for who, (events, size) in sums.items()]
    return sorted(found, key=lambda each: (-each.events, -each.bytes, each.service, each.source))[:TOP_SOURCES]


async def parts_of(path: Path, urls: Sequence[str]) -> Parts:
    """Return the parts: those of `urls` (``NAME=URL``), else those of the stack in `path`.

    ``NAME=dns://HOST:PORT`` is every address that the name has now. Raises `CommandError` for an invalid address, or if nothing
    runs.
    """
    if urls:
        found = await asyncio.gather(*map(_named, urls))
        return [part for parts in found for part in parts][:MOST]
    state = StateFolder(path)
    record = await asyncio.to_thread(state.what_runs)
    if not record:
        raise state.nothing_runs("name parts with --url")
    return [(name, f"http://{part['ops']}") for name, part in record["parts"].items() if part["ops"]]


async def _named(text: str) -> Parts:
    name, _, url = text.partition("=")
    if dns := _DNS.fullmatch(url):
        return await _resolve(name, dns[1], int(dns[2]))
    if re.fullmatch(r"[\w-]+=https?://[^/\s]+(/\S*)?", text) is None:
        raise CommandError(f"--url {text}: expected NAME=http://HOST:PORT, or NAME=dns://HOST:PORT.", status=2)
    return [(name, url.rstrip("/").removesuffix("/metrics"))]


def read(service: str, url: str, at: float, metrics: Answer, ready: Answer) -> Scrape:
    """Return a part's answers to ``/metrics`` and ``/readyz``, read. Pure."""
    status, text = metrics
    if status != 200:
        return Scrape(service, url, at, problem=text if status == 0 else f"/metrics answers {status}")
    try:
        values = _values(text)
    except ValueError as error:
        return Scrape(service, url, at, problem=f"/metrics cannot be read: {error}")
    lines = [line for line in ready[1].splitlines() if line and line != "ok"]
    return Scrape(service, url, at, ready[0] == 200, lines, values)


def _values(text: str) -> dict[str, dict[Labels, float]]:
    """Return the samples by name. Those of the process and of Python are left out but one: reading them would cost as much as
    ours.
    """
    wanted = "".join(f"{line}\n" for line in text.splitlines() if not line.startswith(_UNREAD))
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(wanted):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


async def _resolve(service: str, host: str, port: int) -> Parts:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return [(service, f"http://{host}:{port}")]  # it is shown as what does not answer
    addresses = sorted({str(info[4][0]) for info in found})
    return [(service, f"http://[{each}]:{port}" if ":" in each else f"http://{each}:{port}") for each in addresses]


class Scraper:
    """Asks all parts for their metrics at once, over connections that stay open."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def look(self, parts: Parts) -> list[Scrape]:
        """Return an answer of each part. It takes as long as the slowest, at most `SECONDS`."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=SECONDS),
                connector=aiohttp.TCPConnector(limit=0),
                trust_env=False,  # a proxy reaches neither this machine nor a cluster
            )
        urls = {url: service for service, url in parts}
        return list(await asyncio.gather(*(self._ask(service, url) for url, service in urls.items())))

    async def _ask(self, service: str, url: str) -> Scrape:
        metrics, ready = await asyncio.gather(self._get(f"{url}/metrics"), self._get(f"{url}/readyz"))
        return read(service, url, monotonic(), metrics, ready)

    async def _get(self, url: str) -> Answer:
        assert self._session is not None
        try:
            async with self._session.get(url, allow_redirects=False) as answer:
                text = b""
                while len(text) < MOST_BYTES and (piece := await answer.content.read(MOST_BYTES)):
                    text += piece
                return answer.status, text.decode(errors="replace")
        except TimeoutError:
            return 0, "does not answer in time"
        except aiohttp.ClientConnectorError as error:
            return 0, f"does not answer ({error.os_error.strerror or type(error.os_error).__name__})"
        except (aiohttp.ClientError, OSError) as error:
            return 0, f"does not answer ({error or type(error).__name__})"

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
