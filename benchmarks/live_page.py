"""The live page: how soon a browser paints it, and what being looked at costs the services.

A stack on this machine, without clients. Paint: Chromium opens the page again and again; first contentful paint, and the moment
at which the whole channel is drawn. Without Chromium: the time to the whole HTML, CSS and JavaScript. Cost: CPU of every receiver
and of the landing job's Python process, in turns without the page's process (it is stopped), with it and nobody looking, and
with one viewer. Writes ``benchmarks/results/live-page.json`` and ``.md``.

    .venv/bin/python -m benchmarks.live_page [--state FOLDER] [--paints 30] [--seconds 20] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from tests.live.chromium import PROGRAM, browser

RESULTS = Path(__file__).parent / "results"


def headrace(*arguments: str) -> None:
    subprocess.run([sys.executable, "-P", "-m", "headrace_cli", *arguments], check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def stack(given: Path | None) -> Iterator[dict[str, Any]]:
    """Yields the stack in `given`, or one of its own."""
    with tempfile.TemporaryDirectory(prefix="headrace-live-") as folder:
        state = given or Path(folder) / "state"
        if given is None:
            headrace("up", "--any-port", "--detach", "--state", str(state))
        try:
            yield json.loads((state / "run" / "stack.json").read_text())
        finally:
            if given is None:
                headrace("down", "--state", str(state))


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def summary(values: list[float]) -> dict[str, float]:
    return {"p50": round(statistics.median(values), 1), "p95": round(percentile(values, 0.95), 1), "times": len(values)}


async def paints(url: str, times: int) -> dict[str, Any]:
    """Milliseconds from the start of a navigation."""
    if shutil.which(PROGRAM) is None:
        return {"whole_ms": summary([await fetched(url) for _ in range(times)])}
    first, drawn = [], []
    async with browser() as page:
        await page.show(1440, 900, still=False)
        for _ in range(times):
            await page.call("Network.clearBrowserCache")
            await page.go(url)
            await page.until(
                "performance.getEntriesByName('drawn').length && performance.getEntriesByName('first-contentful-paint').length"
            )
            first.append(await page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            drawn.append(await page.evaluate("performance.getEntriesByName('drawn')[0].startTime"))
    return {"first_paint_ms": summary(first), "drawn_ms": summary(drawn)}


async def fetched(url: str) -> float:
    began = time.perf_counter()
    async with aiohttp.ClientSession() as client:
        for name in ("", "page.css", "page.js"):
            async with client.get(url + name) as answer:
                await answer.read()
    return (time.perf_counter() - began) * 1000


@contextlib.asynccontextmanager
async def viewer(url: str) -> AsyncIterator[None]:
    """Reads the stream as a browser does."""

    async def read() -> None:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as client,
            client.get(url + "stream") as answer,
        ):
            async for _ in answer.content:
                pass

    reading = asyncio.create_task(read())
    try:
        yield
    finally:
        reading.cancel()


async def measured(pids: dict[str, int], seconds: float) -> dict[str, float]:
    """Percent of a core that each process took."""

    def spent() -> dict[str, float]:
        return {name: sum(psutil.Process(pid).cpu_times()[:2]) for name, pid in pids.items()}

    before, began = spent(), time.monotonic()
    await asyncio.sleep(seconds)
    took = time.monotonic() - began
    return {name: 100 * (value - before[name]) / took for name, value in spent().items()}


async def costs(record: dict[str, Any], seconds: float, rounds: int) -> dict[str, Any]:
    pids = {name: service["pid"] for name, service in record["services"].items()} | {
        "lake": record["lake_child"]["pid"]
    }
    page = psutil.Process(record["live_child"]["pid"])
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def note(name: str, took: dict[str, float]) -> None:
        for part, value in took.items():
            found[name][part].append(value)

    for _ in range(rounds):
        page.send_signal(signal.SIGSTOP)
        try:
            note("without", await measured(pids, seconds))
        finally:
            page.send_signal(signal.SIGCONT)
        await asyncio.sleep(3)
        note("nobody", await measured({**pids, "page": page.pid}, seconds))
        async with viewer(record["live"]):
            await asyncio.sleep(2)
            note("viewer", await measured({**pids, "page": page.pid}, seconds))
    return {
        name: {part: round(statistics.median(values), 2) for part, values in parts.items()}
        for name, parts in found.items()
    }


def rows(result: dict[str, Any]) -> list[str]:
    load = f"{psutil.cpu_count()} CPUs with a load of {result['load'][0]} at the beginning and {result['load'][1]} at the end"
    lines = [
        f"Milliseconds from the start of a navigation, on loopback; {load}. Written by `python -m benchmarks.live_page`.",
        "",
    ]
    lines += ["| | p50 | p95 | times |", "|---|---|---|---|"]
    words = {
        "first_paint_ms": "first contentful paint",
        "drawn_ms": "the channel is drawn",
        "whole_ms": "HTML, CSS and JavaScript",
    }
    lines += [
        f"| {words[name]} | {each['p50']} | {each['p95']} | {each['times']} |" for name, each in result["paint"].items()
    ]
    lines += [
        "",
        "Percent of a core; the stack has no clients.",
        "",
        "| | without the page | nobody looks | one viewer | the viewer costs |",
    ]
    lines += ["|---|---|---|---|---|"]
    cost = result["cost"]
    for part in cost["without"]:
        values = [cost[name][part] for name in ("without", "nobody", "viewer")]
        lines.append(f"| {part} | {' | '.join(map(str, values))} | {values[2] - values[0]:.2f} |")
    totals = [
        sum(value for part, value in cost[name].items() if part != "page") for name in ("without", "nobody", "viewer")
    ]
    lines.append(
        f"| all services | {' | '.join(f'{value:.2f}' for value in totals)} | **{totals[2] - totals[0]:.2f}** |"
    )
    lines.append(f"| the page's process | – | {cost['nobody']['page']} | {cost['viewer']['page']} | |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", type=Path)
    parser.add_argument("--paints", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with stack(options.state) as record:
        before = round(psutil.getloadavg()[0], 1)
        result = {
            "paint": asyncio.run(paints(record["live"], options.paints)),
            "cost": asyncio.run(costs(record, options.seconds, options.rounds)),
            "load": [before, round(psutil.getloadavg()[0], 1)],
        }
    (RESULTS / "live-page.json").write_text(json.dumps(result, indent=1) + "\n")
    (RESULTS / "live-page.md").write_text("\n".join(rows(result)) + "\n")
    print("\n".join(rows(result)))


if __name__ == "__main__":
    main()
