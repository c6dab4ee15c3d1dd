"""How long a Forward client waits for its acknowledgement while others send bombs, on this machine, in one run.

Neighbours send one event after the other, each every 10 ms, over one connection each: first alone, then while other
connections send one kind of bomb after the other, as fast as the receiver takes them, from a process of their own. Nothing
is left out: the percentiles are over all that the neighbours sent while there were bombs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import msgpack
import psutil
from headrace_forward.wire import ForwardReplies

from . import load

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MIB = 1 << 20
GIVES_UP = 10.0  # seconds
AIM_MS = 100
EVERY = 0.010
"""Seconds between two events of a neighbour, beside what it waits."""


def _packed(payload: bytes) -> bytes:
    return bytes(msgpack.packb(["bomb", payload, {"chunk": "bomb"}]))


def _in_record(head: bytes) -> bytes:
    return b"\x94\xa4bomb\x01\x81\xa1k" + head


def _listed(entries: bytes, count: int) -> bytes:
    return b"\x93\xa4bomb\xdd" + count.to_bytes(4, "big") + entries * count + b"\x81\xa5chunk\xa4bomb"


ENTRY = b"\x92\x01\x80"
ODD = b"\x92\x01\x81\x01\x01"
"""An entry whose key is no text: it takes the slow path."""

BOMBS: dict[str, Callable[[], bytes]] = {
    "gzip, ratio 1,000": lambda: _packed(gzip.compress(bytes(256 * MIB), 9)),
    "zstd, ratio 30,000": lambda: _packed(zstd.compress(bytes(256 * MIB))),
    "gzip, 4,096 members": lambda: _packed(gzip.compress(bytes(64 << 10)) * 4096),
    "100,000 tiny entries, gzip": lambda: _packed(gzip.compress(ENTRY * 100_000)),
    "100,000 odd entries, gzip": lambda: _packed(gzip.compress(ODD * 100_000)),
    "100,000 entries that are none": lambda: _listed(b"\x01", 100_000),
    "heartbeats, 1 MiB": lambda: b"\xc0" * MIB,
    "20,000 tiny messages": lambda: b"\x93\xa1t\x01\x80" * 20_000,
    "an event of 300,000 empty maps": lambda: (
        _in_record(b"\xdd" + (300_000).to_bytes(4, "big") + b"\x80" * 300_000) + b"\x81\xa5chunk\xa4bomb"
    ),
    "17 MiB in a map32": lambda: _in_record(b"\xdf\xff\xff\xff\xff") + bytes(17 * MIB),
    "JSON heartbeats, 1 MiB": lambda: b"null " * (MIB // 5),
    "JSON of 16 MiB that never ends": lambda: b'["bomb", [' + b"[1, {}]," * (2 * MIB),
}
"""The frame that a bomber sends, again and again."""


async def _bomb(port: int, data: bytes, started: Event) -> None:
    """One bomb after the other, each on a connection of its own: some are closed for what they are."""
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError, TimeoutError):
            writer.write(data)
            started.set()
            await writer.drain()
            if data.endswith(b"bomb"):  # it asks for an acknowledgement
                await asyncio.wait_for(reader.read(100), 60)
        writer.close()


def _bombers(port: int, name: str | None, count: int, started: Event) -> None:
    assert name is not None
    data = BOMBS[name]()

    async def all_of_them() -> None:
        await asyncio.gather(*(_bomb(port, data, started) for _ in range(count)))

    asyncio.run(all_of_them())


class Neighbour:
    """A client of one event at a time."""

    def __init__(self, number: int, port: int) -> None:
        self._number = number
        self._port = port
        self._n = 0
        self._replies = ForwardReplies()

    async def connect(self) -> None:
        """It is there, and was answered once."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        await self.wait()

    async def wait(self) -> float:
        """Seconds until its next event is acknowledged."""
        self._n += 1
        message = msgpack.packb(["neighbour", 1, {"n": self._n, "of": self._number}, {"chunk": str(self._n)}])
        began = time.monotonic()
        self._writer.write(message)
        answers: list[str | bytes] = []
        while not answers:
            data = await self._reader.read(4096)
            if not data:
                raise SystemExit("the receiver closed a neighbour's connection")
            answers = self._replies.receive(data)
        if answers != [str(self._n)]:
            raise SystemExit(f"acknowledged {answers}, sent {self._n}")
        return time.monotonic() - began

    async def until(self, end: float, waits: list[float]) -> None:
        """Sends until then, or until an answer is given up."""
        while time.monotonic() < end:
            try:
                waits.append(await asyncio.wait_for(self.wait(), GIVES_UP))
            except TimeoutError:
                waits.append(GIVES_UP)
                break
            await asyncio.sleep(EVERY)
        self._writer.close()


async def _waits(arguments: argparse.Namespace, port: int, begin: Callable[[], None]) -> list[float]:
    """The neighbours are there when the bombs come."""
    neighbours = [Neighbour(number, port) for number in range(arguments.neighbours)]
    await asyncio.gather(*(neighbour.connect() for neighbour in neighbours))
    await asyncio.to_thread(begin)
    waits: list[float] = []
    end = time.monotonic() + arguments.seconds
    await asyncio.gather(*(neighbour.until(end, waits) for neighbour in neighbours))
    return waits


def phase(arguments: argparse.Namespace, server: tuple[psutil.Process, int], name: str | None) -> dict[str, float]:
    """Returns what the neighbours wait while there are bombs of this kind; None: alone."""
    process, port = server
    context = multiprocessing.get_context("spawn")
    started = context.Event()
    bombers = context.Process(target=_bombers, args=(port, name, arguments.bombers, started), daemon=True)

    def begin() -> None:
        if name is not None:
            bombers.start()
            started.wait()

    try:
        waits = asyncio.run(_waits(arguments, port, begin))
        resident = process.memory_info().rss / 1e6
    finally:
        if name is not None:
            bombers.kill()
            bombers.join()
    time.sleep(1)
    cuts = statistics.quantiles(waits, n=100)
    return {
        "events": len(waits),
        "p50_ms": cuts[49] * 1000,
        "p99_ms": cuts[98] * 1000,
        "most_ms": max(waits) * 1000,
        "resident_mb": resident,
    }


def arguments(command: argparse.ArgumentParser) -> None:
    """Declares the options."""
    command.add_argument("--seconds", type=float, default=5)
    command.add_argument("--bombers", type=int, default=16)
    command.add_argument("--neighbours", type=int, default=8)
    command.add_argument("--only", help="only bombs whose name contains this")
    command.add_argument("--before", metavar="REVISION", help="also measure the receiver as it was at this revision")


def run(arguments: argparse.Namespace) -> load.Results:
    """Each kind of bomb in turn."""
    kinds = [name for name in BOMBS if arguments.only is None or arguments.only in name]
    measured: dict[str, dict[str, dict[str, float]]] = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bootstrap = stack.enter_context(load.kafka(folder))
        trees = {"now": load.ROOT}
        if arguments.before:
            trees["before"] = stack.enter_context(load.checked_out(arguments.before))
        for side, tree in trees.items():
            for name in (None, *kinds):
                with load.receiver("headrace_forward", bootstrap, folder, tree) as server:
                    figures = phase(arguments, server, name)
                    measured.setdefault(name or "none", {})[side] = figures
                    print(f"{side}, {name}: p99 {figures['p99_ms']:.1f} ms", flush=True)
    return table(arguments, measured)


def table(arguments: argparse.Namespace, measured: dict[str, Any]) -> load.Results:
    """The results, and a table of them."""
    sides = list(next(iter(measured.values())))
    rows = [
        "| bombs | " + " | ".join(f"p50 / p99 / most, {side}" for side in sides) + " |",
        "|---" * (len(sides) + 1) + "|",
    ]
    for name, figures in measured.items():
        cells = [f"{f['p50_ms']:.1f} / {f['p99_ms']:.1f} / {f['most_ms']:.0f} ms" for f in figures.values()]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    before = f", before: {arguments.before}" if arguments.before else ""
    text = (
        f"What {arguments.neighbours} clients wait for their acknowledgements, an event of each every "
        f"{EVERY * 1000:.0f} ms, while {arguments.bombers} connections send bombs (aim: p99 below {AIM_MS} ms); "
        f"{load.machine()['cpus']} CPUs, shared with the broker, the bombers and the clients. Written by "
        f"`python -m benchmarks.receivers forward-bombs`{before}.\n\n" + "\n".join(rows) + "\n"
    )
    result = {"machine": load.machine(), "bombers": arguments.bombers, "before": arguments.before, "bombs": measured}
    return "forward-bombs", result, text
