"""What a few honest clients wait for while a crowd does its worst, for every receiver: ``python -m benchmarks.crowds``.

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
import gzip
import json
import multiprocessing
import os
import resource
import socket
import ssl
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson
import psutil
from headrace_common.operations.settings import KafkaSettings, TopicSettings
from headrace_courier.wire import identity, jdat
from headrace_logjam.wire import Compression, Meta, compress, encode_meta
from headrace_lumberjack.wire import compressed, json_frame, window

from benchmarks import load
from tests.contract import courier, forward, logjam, lumberjack, segment
from tests.contract.certificates import Authority
from tests.contract.dialect import Can, ContractClient, Dialect, values
from tests.contract.receiver import Receiver
from tests.contract.topic import own_topics

DIALECTS: Final[dict[str, Dialect]] = {
    "forward": forward.ForwardDialect(),
    "lumberjack": lumberjack.LumberjackDialect(),
    "courier": courier.CourierDialect(),
    "logjam": logjam.LogjamDialect(),
    "segment": segment.TodayDialect(),
}
HONEST: Final = 4
EVERY: Final = 0.05
NEWCOMERS_EVERY: Final = 0.25
GIVES_UP: Final = 15.0
"""Seconds after which an honest client gives up: it counts as a wait of that length, and comes again."""

FILES_LEFT: Final = 500
"""Of the limit of open files: what crowd and receiver need beside connections."""

AIM_MS: Final = 100
AIM_KB: Final = 15
LONG_TEXT: Final = b'{"x":"' + b"a" * (60 << 20) + b'"}'
DEEP: Final = {"deep": [orjson.loads(b"[" * 60 + b"]" * 60)] * 800}


@dataclass
class Target:
    """What a crowd is sent at. `started`: set it once the crowd is there."""

    dialect: Dialect
    address: tuple[str, int]
    ops: int
    connections: int
    tls: ssl.SSLContext | None = None
    started: Any = None

    async def connect(self, **more: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self.address, ssl=self.tls, **more)
        await self.dialect.greet(reader, writer)
        return reader, writer

    async def crowd(self, count: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        return [await self.connect() for _ in range(count)]

    def frame(self, **more: Any) -> bytes:
        return self.dialect.conversation().frame(values(1, **more))


def _large(name: str) -> bytes:
    """60 KB of many small events, as dear to look through as the protocol allows."""
    if name == "lumberjack":
        documents = [orjson.dumps(value) for value in values(700)]
        return window(len(documents)) + b"".join(json_frame(1 + n, text) for n, text in enumerate(documents))
    if name == "courier":
        return identity(b"HELO", "2.12.0", b"LCOR") + jdat(bytes(16), map(orjson.dumps, values(750)), level=0)
    return DIALECTS[name].conversation().frame(values(350 if name == "logjam" else 790))


def _bomb(name: str) -> bytes:
    """A frame that grows as far as the protocol's compression can make it."""
    if name == "forward":
        return forward.ForwardConversation().packed(gzip.compress(bytes(256 << 20), 9), compressed="gzip")
    if name == "lumberjack":
        return window(1) + compressed(json_frame(1, LONG_TEXT), 9)
    if name == "courier":
        return identity(b"HELO", "2.12.0", b"LCOR") + jdat(bytes(16), [LONG_TEXT], level=9)
    body = compress(Compression.ZLIB, LONG_TEXT)
    return logjam.message([b"", logjam.APP_ENV, logjam.TOPIC, body, encode_meta(Meta(Compression.ZLIB))])


async def _silent(to: Target) -> None:
    """6,000 connections of one address, more than its share, that send nothing; who is closed comes again."""

    async def one() -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(*to.address)
                await reader.read(1)
                writer.close()
            await asyncio.sleep(1)

    crowd = [asyncio.create_task(one()) for _ in range(6000)]
    await asyncio.sleep(2)
    to.started.set()
    await asyncio.gather(*crowd)


async def _again(to: Target, count: int, data: bytes) -> None:
    """Each connection sends `data`, hears something, and sends it again on another connection; all of the first at once."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            with contextlib.suppress(OSError, TimeoutError):
                writer.write(data)
                await asyncio.wait_for(reader.read(100), 60)
            writer.close()
            while True:
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    reader, writer = await to.connect()
                    break
                await asyncio.sleep(0.1)

    crowd = await to.crowd(count)
    to.started.set()
    await asyncio.gather(*(one(*each) for each in crowd))


async def _burst(to: Target) -> None:
    """300 connections with 60 KB each at once, again and again."""
    await _again(to, 300, _large(to.dialect.name))


async def _bombs(to: Target) -> None:
    """16 connections with 4 bombs each, without waiting for an answer."""
    bomb = _bomb(to.dialect.name)
    await _again(to, 16, bomb if to.dialect.name == "courier" else bomb * 4)


async def _nested(to: Target) -> None:
    """16 connections with events of 100 KB that are nested 60 deep."""
    await _again(to, 16, to.frame(**DEEP))


async def _drips(to: Target) -> None:
    """200 connections whose frames arrive a byte at a time, 4,000 bytes a second in all."""
    crowd = await to.crowd(200)
    to.started.set()
    for byte in to.frame(text="x" * 10_000):
        for _, writer in crowd:
            writer.write(bytes((byte,)))
        await asyncio.sleep(0.05)


async def _deaf(to: Target) -> None:
    """50 connections that send frame after frame and never read."""
    frames = _large(to.dialect.name) * 20

    async def one() -> None:
        while True:
            with contextlib.suppress(OSError):
                deaf = socket.socket()
                deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                deaf.setblocking(False)
                await asyncio.get_running_loop().sock_connect(deaf, to.address)
                reader, writer = await asyncio.open_connection(sock=deaf, limit=1)
                await to.dialect.greet(reader, writer)
                while True:
                    writer.write(frames)
                    await writer.drain()
            await asyncio.sleep(0.1)

    crowd = [asyncio.create_task(one()) for _ in range(50)]
    to.started.set()
    await asyncio.gather(*crowd)


async def _heartbeats(to: Target) -> None:
    """UDP heartbeats, as many as one process can send."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.connect(to.address)
        to.started.set()
        while True:
            with contextlib.suppress(OSError):
                sender.send(b"\0")


async def _half_open(to: Target) -> None:
    """1,000 requests to the operations port that never end; who is closed comes again."""

    async def one() -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(to.address[0], to.ops)
                writer.write(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
                await reader.read(1)
                writer.close()
            await asyncio.sleep(0.2)

    crowd = [asyncio.create_task(one()) for _ in range(1000)]
    await asyncio.sleep(1)
    to.started.set()
    await asyncio.gather(*crowd)


async def _handshakes(to: Target) -> None:
    """16 clients that do one TLS handshake after the other, beside 1,000 that stop in the middle of one."""
    half = [await asyncio.open_connection(*to.address) for _ in range(1000)]
    for _, writer in half:
        writer.write(bytes.fromhex("1603010200010001fc0303"))

    async def one() -> None:
        while True:
            with contextlib.suppress(OSError, ssl.SSLError):
                _, writer = await to.connect(server_hostname="localhost")
                writer.close()

    to.started.set()
    await asyncio.gather(*(one() for _ in range(16)))


async def _many(to: Target) -> None:
    """Connections with one event each, which stay; `started` once all are acknowledged."""
    room, kept = asyncio.Semaphore(64), []

    async def one() -> None:
        async with room:
            reader, writer = await to.connect()
            kept.append(writer)
            writer.write(to.frame())
            while not await asyncio.wait_for(reader.read(1000), 120):
                raise SystemExit("one of many was closed")

    await asyncio.gather(*(one() for _ in range(to.connections)))
    to.started.set()
    await asyncio.sleep(3600)


CROWDS: Final[dict[str, tuple[Callable[[Target], Awaitable[None]] | None, tuple[str, ...]]]] = {
    "nobody": (None, tuple(DIALECTS)),
    "silent": (_silent, tuple(DIALECTS)),
    "burst": (_burst, tuple(DIALECTS)),
    "bombs": (_bombs, ("forward", "lumberjack", "courier", "logjam")),
    "nested": (_nested, tuple(DIALECTS)),
    "drips": (_drips, tuple(DIALECTS)),
    "deaf": (_deaf, tuple(DIALECTS)),
    "heartbeats": (_heartbeats, ("forward",)),
    "half-open": (_half_open, tuple(DIALECTS)),
    "handshakes": (_handshakes, tuple(name for name, dialect in DIALECTS.items() if Can.TLS in dialect.can)),
    "many": (_many, tuple(DIALECTS)),
}
"""Each with the protocols that it can be tried on."""


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
        except (AssertionError, OSError, TimeoutError):
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
        await asyncio.sleep(2)
    end()
    await honest.newcomer()


def measure(name: str, receiver: Receiver, to: Target, seconds: float) -> dict[str, Any]:
    """The figures of one crowd at one receiver."""
    crowd, _ = CROWDS[name]
    context = multiprocessing.get_context("fork")
    go, to.started, many = context.Event(), context.Event(), name == "many"
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
        "newcomers": len(during),
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
        kinds: dict[str, dict[str, Any]] = {
            "many": {"limits": {"connections": connections + FILES_LEFT, "connections_per_address": 0}},
            "handshakes": {"tls": {"cert": cert, "key": key}},
        }
        for protocol in arguments.protocol or DIALECTS:
            dialect = DIALECTS[protocol]
            kafka = own_topics(bootstrap, TopicSettings(events_partitions=4, segments_partitions=dialect.segments))
            for crowd in arguments.crowd or CROWDS:
                if protocol in CROWDS[crowd][1]:
                    with _running(dialect, kafka, folder, kinds.get(crowd, {})) as receiver:
                        tls = authority.context() if crowd == "handshakes" else None
                        to = Target(dialect, receiver.address, receiver.ops, connections, tls)
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
                f"{row['newcomers_served']} of {row['newcomers']}, {row['newcomer_most_ms']:.0f} ms",
                f"{row['after_ms']:.0f} ms",
            ]
            rows.append("| " + " | ".join(cells) + " |")
    many = measured.get("many", {})
    held = ", ".join(f"{row['kb_a_connection']:.1f} KB {name} ({row['connections']:,})" for name, row in many.items())
    crowds = "\n".join(
        f"- {name}: {crowd.__doc__}" for name, (crowd, _) in CROWDS.items() if crowd and name in measured
    )
    return (
        f"What {HONEST} clients with an event every {EVERY * 1000:.0f} ms wait beside a crowd, {seconds:g} s each, and "
        f"newcomers who send one event; a wait that is given up counts as {GIVES_UP:.0f} s. In CPU: what the receiver's event "
        f"loop has used meanwhile (aim: p99 below {AIM_MS} ms). {os.cpu_count()} CPUs, shared with the broker, the crowd and "
        f"the clients, load average {os.getloadavg()[1]:.1f}. Written by `python -m benchmarks.crowds`.\n\n"
        + "\n".join(rows)
        + f"\n\nMemory for each connection that has sent one event (aim: {AIM_KB} KB; in brackets how many, since files are "
        + f"limited to {files:,}): {held}.\n\n{crowds}\n"
    )


if __name__ == "__main__":
    main()
