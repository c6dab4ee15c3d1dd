"""Asks parts of Headrace for their metrics and their readiness over HTTP."""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from headrace_cli.ground import CommandError
from headrace_cli.stack.state import StateFolder

SECONDS: Final = 3.0
"""Time that a part has for each answer."""
MOST_BYTES: Final = 16 * 1024 * 1024
AT_ONCE: Final = 16
_OPEN: Final = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
"""Parts are asked directly, as the live page does: a proxy of the environment does not reach this machine, or a cluster."""
_TITLE: Final = re.compile(r"<title>(.{1,40}?)</title>")
_UNREAD: Final = ("#", "python_", "process_c", "process_v", "process_r", "process_o", "process_m")

Labels = tuple[tuple[str, str], ...]
Answer = tuple[int, str]
"""Status and text; status 0 with the reason when there is no answer."""


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
        """Whether the part has this metric."""
        return name in self.values

    def total(self, name: str) -> float:
        """The sum over all labels; 0 if it is not there."""
        return sum(self.values.get(name, {}).values())

    def most(self, name: str) -> float | None:
        """The largest over all labels."""
        return max(self.values.get(name, {}).values(), default=None)

    def buckets(self, name: str) -> dict[float, float]:
        """A histogram's counts by upper bound, as the exposition has them: cumulative."""
        found = self.values.get(f"{name}_bucket", {})
        return {float(dict(labels)["le"]): count for labels, count in found.items()}


def parts_of(path: Path, urls: Sequence[str]) -> list[tuple[str, str]]:
    """Return (service, address) of the parts: those named (``[NAME=]URL``), else those of the stack in `path`.

    The name is empty if nobody says it. Raises `CommandError` for what is no address, or if nothing runs.
    """
    if urls:
        return [named(text) for text in urls]
    state = StateFolder(path)
    record = state.what_runs()
    if not record:
        raise state.nothing_runs("name parts with --url")
    services = [(name, f"http://{service['ops']}") for name, service in record["services"].items()]
    return [*services, ("lake", f"http://{record['lake_ops']}")]


def named(text: str) -> tuple[str, str]:
    """Read ``[NAME=]URL``. Raises `CommandError`."""
    name, equals, url = text.partition("=")
    if not equals or "/" in name:
        name, url = "", text
    if "://" not in url:
        url = f"http://{url}"
    if re.fullmatch(r"https?://[^/\s]+(/\S*)?", url) is None:
        raise CommandError(f"--url {text}: expected http://HOST:PORT, or NAME=http://HOST:PORT.", status=2)
    return name, url.rstrip("/").removesuffix("/metrics")


def scrape_all(parts: Iterable[tuple[str, str]]) -> list[Scrape]:
    """Ask all parts at the same time. Blocks for at most a few seconds for every 16 of them."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda part: scrape(*part), parts))


def scrape(service: str, url: str) -> Scrape:
    """Ask one part. What does not answer has a `problem`."""
    metrics = _get(f"{url}/metrics")
    at = monotonic()
    name = service or name_on(_get(f"{url}/")) or url.partition("://")[2]
    return read(name, url, at, metrics, _get(f"{url}/readyz") if metrics[0] == http.client.OK else (0, ""))


def read(service: str, url: str, at: float, metrics: Answer, ready: Answer) -> Scrape:
    """Return a part's answers to ``/metrics`` and ``/readyz``, read. Pure."""
    status, text = metrics
    if status != http.client.OK:
        return Scrape(service, url, at, problem=text if status == 0 else f"/metrics answers {status}")
    try:
        values = _values(text)
    except ValueError as error:
        return Scrape(service, url, at, problem=f"/metrics cannot be read: {error}")
    lines = [line for line in ready[1].splitlines() if line and line != "ok"]
    return Scrape(service, url, at, ready[0] == http.client.OK, lines, values)


def _values(text: str) -> dict[str, dict[Labels, float]]:
    """The samples by name. Those of the process and of Python are left out but one: reading them would cost as much as ours."""
    wanted = "".join(f"{line}\n" for line in text.splitlines() if not line.startswith(_UNREAD))
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(wanted):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def name_on(page: Answer) -> str:
    """The name of the part whose status page this is; empty if it has none."""
    title = _TITLE.search(page[1]) if page[0] == http.client.OK else None
    return title[1] if title is not None else ""


def _get(url: str) -> Answer:
    try:
        with _OPEN(url, timeout=SECONDS) as answer:
            return answer.status, answer.read(MOST_BYTES).decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read(65_536).decode(errors="replace")
    except (OSError, http.client.HTTPException, UnicodeError) as error:  # an address with letters that no URL has
        reason = getattr(error, "reason", error)
        return 0, f"does not answer ({getattr(reason, 'strerror', None) or reason or type(error).__name__})"
