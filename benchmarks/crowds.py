"""Measures what a few honest clients wait for while a crowd does its worst, for every receiver: ``python -m benchmarks.crowds``.

Each receiver is a process of its own with the settings that users have by default; the crowd is another process, of lower
priority, as if it were elsewhere. Honest clients have one event on its way each, an event every 50 ms; newcomers connect, send
one event and leave. Beside the time on the wall, which says as much of the machine as of the receiver, the processor time that
the receiver's event loop has used meanwhile is taken for each wait (aim: p99 below 100 ms). Then as many connections as the limit
of files allows send one event each; memory is compared before and after. Writes ``benchmarks/results/crowds.json`` and ``.md``:
what was not measured keeps its figures.

    python -m benchmarks.crowds [--protocol forward] [--crowd bombs] [--seconds 4] [--connections 20000] [--dry]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
from headrace_common.operations.settings import KafkaSettings, TopicSettings

from benchmarks.crowd_attacks import CROWDS, DIALECTS, MANY, SECURED, Target
from benchmarks.receivers import load
from tests.contract.certificates import Authority
from tests.contract.dialect import ContractClient, Dialect, values
from tests.contract.receiver import Receiver
from tests.contract.topic import own_topics

HONEST: Final = 4
EVERY: Final = 0.05
NEWCOMERS_EVERY: Final = 0.25
GIVES_UP: Final = 15.0
"""Seconds after which an honest client gives up: it counts as a wait of that length, and comes again."""

FILES_LEFT: Final = 500
"""Of the limit of open files: what crowd and receiver need beside connections."""

BY_TLS: Final = 2_000
"""Connections of a crowd that speaks TLS, at most: asyncio's own TLS takes 256 KiB for each client."""

HELD: Final = 12
"""Seconds that such connections stay before their memory is read."""

AIM_MS: Final = 100
AIM_KB: Final = 15


def cpu_ms(pid: int) -> float:
    """Processor time of a process's main thread, where its event loop runs."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


@dataclass
class Honest:
    """The clients beside a crowd, and what they have seen."""

    to: Target
    pid: int
    waits: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    failed: int = 0
    newcomers: list[float] = field(default_factory=list)
    closed: int = 0
    """Newcomers whose connection was closed before they were served: their place went to another."""

    async def connect(self) -> ContractClient:
        return await ContractClient.connect(self.to.dialect, self.to.address, self.to.tls)

    async def once(self, client: ContractClient) -> None:
        """One event, acknowledged."""
        began, cpu = time.monotonic(), cpu_ms(self.pid)
        await client.receives(await client.send(values(1)), GIVES_UP)
        self.waits.append((time.monotonic() - began) * 1000)
        self.cpu.append(cpu_ms(self.pid) - cpu)

    async def until(self, end: Callable[[], bool], client: ContractClient) -> None:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(client)
            while not end():
                try:
                    await self.once(client)
                except (AssertionError, OSError):
                    self.failed += 1
                    self.waits.append(GIVES_UP * 1000)
                    self.cpu.append(GIVES_UP * 1000)
                    client = await stack.enter_async_context(await self.connect())
                await asyncio.sleep(EVERY)

    async def newcomer(self) -> None:
        """Connects, sends an event, hears, leaves. Its time, or that it was not served."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(GIVES_UP), await self.connect() as client:
                await client.receives(await client.send(values(1)), GIVES_UP)
            self.newcomers.append((time.monotonic() - began) * 1000)
        except TimeoutError:
            self.newcomers.append(GIVES_UP * 1000)
        except (AssertionError, OSError):
            if time.monotonic() - began < GIVES_UP:
                self.closed += 1
            else:
                self.newcomers.append(GIVES_UP * 1000)

    async def come(self, end: Callable[[], bool]) -> None:
        while not end():
            await self.newcomer()
            await asyncio.sleep(NEWCOMERS_EVERY)


def _be(crowd: Callable[[Target], Awaitable[None]], to: Target, go: Any) -> None:
    os.nice(10)  # on a machine of its own it would not take the broker's and the honest clients' processor
    go.wait()

    async def main() -> None:
        await crowd(to)

    asyncio.run(main())


async def beside(
    honest: Honest, begin: Callable[[], None], end: Callable[[], None], seconds: float, gone: Callable[[], bool] | None
) -> None:
    """Honest clients who were there before the crowd, newcomers, and one who comes after it. `gone`: whether a crowd has
    ended that they wait for, however long it takes to be there.
    """
    clients = [await honest.connect() for _ in range(HONEST)]
    for client in clients * 5:
        await honest.once(client)
    honest.waits.clear()
    honest.cpu.clear()
    await asyncio.to_thread(begin)
    over = time.monotonic() + seconds
    there = (lambda: honest.to.started.is_set() or gone()) if gone else (lambda: time.monotonic() >= over)
    await asyncio.gather(honest.come(there), *(honest.until(there, client) for client in clients))
    if gone:
        await asyncio.sleep(HELD)
    end()
    await honest.newcomer()


def measure(name: str, receiver: Receiver, to: Target, seconds: float) -> dict[str, Any]:
    """The figures of one crowd at one receiver."""
    crowd, _ = CROWDS[name]
    context = multiprocessing.get_context("fork")
    go, to.started, many = context.Event(), context.Event(), name in MANY
    honest = Honest(to, receiver.pid)
    child = context.Process(target=_be, args=(crowd, to, go), daemon=True) if crowd else None
    process = psutil.Process(receiver.pid)
    began: list[tuple[float, float, int]] = []

    def begin() -> None:
        began.append((time.monotonic(), sum(process.cpu_times()[:2]), process.memory_info().rss))
        go.set()
        if child is not None and not many:
            to.started.wait(60)

    def end() -> None:
        began.append((time.monotonic(), sum(process.cpu_times()[:2]), process.memory_info().rss))
        if child is not None:
            child.kill()
            child.join()

    connections = to.connections
    if child is not None:
        child.start()
    asyncio.run(beside(honest, begin, end, seconds, (lambda: not child.is_alive()) if many and child else None))
    (start, cpu, before), (over, cpu_over, after) = began
    cuts, cpu_cuts = (statistics.quantiles(each, n=100) for each in (honest.waits, honest.cpu))
    *during, last = honest.newcomers
    return {
        "events": len(honest.waits),
        "failed": honest.failed,
        "p50_ms": cuts[49],
        "p99_ms": cuts[98],
        "most_ms": max(honest.waits),
        "cpu_p99_ms": cpu_cuts[98],
        "cpu_most_ms": max(honest.cpu),
        "cores": (cpu_over - cpu) / (over - start),
        "resident_mb": after / 1e6,
        "newcomers": len(during) + honest.closed,
        "newcomers_closed": honest.closed,
        "newcomers_served": sum(each < GIVES_UP * 1000 for each in during),
        "newcomer_most_ms": max(during),
        "after_ms": last,
        **({"connections": connections, "kb_a_connection": (after - before) / connections / 1000} if many else {}),
    }


def main() -> None:
    """Every crowd at every receiver, and the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocol", choices=DIALECTS, action="append")
    parser.add_argument("--crowd", choices=CROWDS, action="append")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--connections", type=int, default=20_000, help="of the crowd `many`")
    parser.add_argument("--dry", action="store_true", help="print the table, and leave the results file as it is")
    arguments = parser.parse_args()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    connections = min(arguments.connections, files - FILES_LEFT)
    measured: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as name, load.kafka(Path(name)) as bootstrap:
        folder, authority = Path(name), Authority(Path(name))
        cert, key = authority.issue("server", "server")
        room = {"limits": {"connections": connections + FILES_LEFT, "connections_per_address": 0}}
        certificate = {"tls": {"cert": cert, "key": key}}
        for protocol in arguments.protocol or DIALECTS:
            dialect = DIALECTS[protocol]
            kafka = own_topics(bootstrap, TopicSettings(events_partitions=4, segments_partitions=dialect.segments))
            for crowd in arguments.crowd or CROWDS:
                if protocol in CROWDS[crowd][1]:
                    sections = {**(room if crowd in MANY else {}), **(certificate if crowd in SECURED else {})}
                    with _running(dialect, kafka, folder, sections) as receiver:
                        tls = authority.context() if crowd in SECURED else None
                        most = min(connections, BY_TLS) if tls else connections
                        to = Target(dialect, receiver.address, receiver.ops, most, tls)
                        measured.setdefault(crowd, {})[protocol] = measure(crowd, receiver, to, arguments.seconds)
                        print(
                            crowd, protocol, {k: round(v, 1) for k, v in measured[crowd][protocol].items()}, flush=True
                        )
    path = load.RESULTS / "crowds.json"
    before = json.loads(path.read_text())["crowds"] if path.exists() else {}
    merged = {crowd: {**before.get(crowd, {}), **measured.get(crowd, {})} for crowd in CROWDS}
    text = table(merged, arguments.seconds, files)
    print(text)
    if not arguments.dry:
        result = {"machine": load.machine(), "seconds": arguments.seconds, "files": files, "crowds": merged}
        path.write_text(json.dumps(result, indent=1) + "\n")
        path.with_suffix(".md").write_text(text)


@contextlib.contextmanager
def _running(dialect: Dialect, kafka: KafkaSettings, folder: Path, sections: dict[str, Any]) -> Iterator[Receiver]:
    """A receiver of its own for each crowd: none inherits another's memory."""
    receiver = Receiver.of(dialect, kafka, folder, sections)
    receiver.spawn()
    try:
        asyncio.run(receiver.listens())
        yield receiver
    finally:
        receiver.stop()


def table(measured: dict[str, dict[str, Any]], seconds: float, files: int) -> str:
    """The results in words: a row for each crowd and receiver."""
    rows = [
        "| crowd | receiver | p50 / p99 / slowest | p99 / slowest in CPU | cores | RSS | newcomers served, slowest | after it |",
        "|---" * 8 + "|",
    ]
    for crowd, receivers in measured.items():
        for protocol, row in receivers.items():
            cells = [
                crowd,
                protocol,
                f"{row['p50_ms']:.0f} / {row['p99_ms']:.0f} / {row['most_ms']:.0f} ms"
                + (f", {row['failed']} given up" if row["failed"] else ""),
                f"{row['cpu_p99_ms']:.0f} / {row['cpu_most_ms']:.0f} ms",
                f"{row['cores']:.2f}",
                f"{row['resident_mb']:.0f} MB",
                f"{row['newcomers_served']} of {row['newcomers']}, {row['newcomer_most_ms']:.0f} ms"
                + (f", {row['newcomers_closed']} closed" if row.get("newcomers_closed") else ""),
                f"{row['after_ms']:.0f} ms",
            ]
            rows.append("| " + " | ".join(cells) + " |")
    held = "; ".join(
        f"{crowd}: "
        + ", ".join(
            f"{row['kb_a_connection']:.1f} KB {name} ({row['connections']:,})" for name, row in measured[crowd].items()
        )
        for crowd in MANY
        if measured.get(crowd)
    )
    above = ", ".join(
        f"{crowd} at {protocol} ({row['cpu_p99_ms']:.0f} ms)"
        for crowd, receivers in measured.items()
        for protocol, row in receivers.items()
        if row["cpu_p99_ms"] >= AIM_MS
    )
    crowds = "\n".join(
        f"- {name}: {crowd.__doc__}" for name, (crowd, _) in CROWDS.items() if crowd and name in measured
    )
    return (
        f"What {HONEST} clients with an event every {EVERY * 1000:.0f} ms wait beside a crowd, {seconds:g} s each, and "
        f"newcomers who send one event; a wait that is given up counts as {GIVES_UP:.0f} s. In CPU: what the receiver's event "
        f"loop has used meanwhile (aim: p99 below {AIM_MS} ms). {os.cpu_count()} CPUs, shared with the broker, the crowd and "
        f"the clients, load average {os.getloadavg()[1]:.1f}. Written by `python -m benchmarks.crowds`.\n\n"
        + "\n".join(rows)
        + f"\n\nAbove the aim in CPU: {above or 'none'}."
        + f"\n\nMemory for each connection of a crowd that stays (aim: {AIM_KB} KB; in brackets how many; files are "
        + f"limited to {files:,}): {held}.\n\n{crowds}\n"
    )


if __name__ == "__main__":
    main()
