"""A broker, a receiver, clients of its protocol over real sockets, and what the receiver costs.

The topic's end offsets are compared with what was acknowledged: a difference is a failure, not a figure.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import socket
import statistics
import string
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
from aiokafka import AIOKafkaConsumer, TopicPartition
from headrace_cli.machine.ports import free_port
from headrace_cli.wire.channel import channel_to
from headrace_cli.wire.target import CLIENTS, Target
from headrace_common.operations.settings import environment
from headrace_common.session.client import Answer

from tests.contract.embedded import EmbeddedKafka

RESULTS: Final = Path(__file__).parent / "results"
COST: Final = "cpu_seconds_per_million"
TOPIC: Final = "headrace.events"
REST: Final = 120.0
"""Seconds after which what a peer has answered, and has not come to Kafka, is called missing."""
_KEPT: Final = 256 << 20
"""Bytes of a partition: twenty minutes of load would fill a disk."""
_FRAMES: Final = 128  # distinct: eight repeating ones compress too well


@dataclass(frozen=True)
class Load:
    """`connections` clients for `seconds`, frames of `events` events; `rate` events a second in all, 0: what goes."""

    connections: int
    events: int
    seconds: float
    rate: float = 0.0
    words: int = 24
    """Words of an event: 24 make about 280 bytes, 270 make 2 KB."""
    files: int = 0
    """Files of 300 nodes from which shippers read the events, at random; 0: the events name none."""


def documents(protocol: str, load: Load) -> list[bytes]:
    """Distinct log-like records, encoded for the protocol."""
    chance, client = random.Random(7), CLIENTS[protocol]()
    words = ["".join(chance.choices(string.ascii_lowercase, k=chance.randint(3, 9))) for _ in range(3000)]

    def of_file(line: str) -> dict[str, Any]:
        number = chance.randrange(load.files)
        node, path = f"node-{number % 300}", f"/var/log/containers/api-{number:06x}_shop_{number:064x}.log"
        if protocol == "courier":
            return {"message": line, "path": path, "host": node}
        log = {"file": {"path": path, "inode": str(number)}, "offset": chance.randrange(1 << 32)}
        return {"message": line, "log": log, "host": {"name": node}, "agent": {"id": node, "ephemeral_id": node}}

    def record() -> dict[str, Any]:
        line = " ".join(chance.choices(words, k=load.words))
        return {
            **(of_file(line) if load.files else {"log": line}),
            "stream": chance.choice(("stdout", "stderr")),
            "kubernetes": {"pod": f"api-{chance.randrange(1 << 24):06x}", "node": f"node-{chance.randrange(40)}"},
            "status": chance.choice((200, 200, 200, 404, 500)),
            "duration": chance.random(),
        }

    return [client.document(record()) for _ in range(load.events * _FRAMES)]


async def one_client(number: int, target: Target, encoded: Sequence[bytes], load: Load, waits: list[float]) -> int:
    """Sends frames one after the other, each after the former's acknowledgement; returns the acknowledged events."""
    client, channel = CLIENTS[target.protocol](), await channel_to(target, 60)
    pause = load.connections * load.events / load.rate if load.rate else 0.0
    loop = asyncio.get_running_loop()
    events, at, until = 0, number * load.events, loop.time() + load.seconds
    due = loop.time() + random.Random(number).random() * pause
    await channel.send(client.again())
    while loop.time() < until:
        if pause:
            await asyncio.sleep(max(0.0, due - loop.time()))
            due += pause
        at = (at + load.events) % len(encoded)
        frame = client.payload(encoded[at : at + load.events])
        sent = time.perf_counter()
        await channel.send(frame)
        whole = False
        while not whole:
            if not (data := await channel.read()):
                raise SystemExit("the receiver closed a connection")
            whole = any(isinstance(each, Answer) and each.whole for each in client.receive(data))
        waits.append(time.perf_counter() - sent)
        events += load.events
    channel.abort()
    return events


async def end_offsets(bootstrap: str, topic: str) -> int:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    try:
        await consumer._client._wait_on_metadata(topic)
        partitions = consumer.partitions_for_topic(topic) or set()
        return sum((await consumer.end_offsets([TopicPartition(topic, p) for p in partitions])).values())
    finally:
        await consumer.stop()


def phase(
    protocol: str, load: Load, port: int, process: psutil.Process, bootstrap: str, unit: int | None = None
) -> dict[str, float]:
    """Runs the clients; returns what it cost. `unit`: events of a record of a peer, which may store later what it has answered,
    or not at all, as `missing` says; None: all that is answered must be there, once.
    """
    return asyncio.run(_phase(Target(protocol, "127.0.0.1", port), load, process, bootstrap, unit))


async def _phase(
    target: Target, load: Load, process: psutil.Process, bootstrap: str, unit: int | None
) -> dict[str, float]:
    encoded, before = documents(target.protocol, load), await end_offsets(bootstrap, TOPIC)
    waits: list[float] = []
    resident = [process.memory_info().rss]

    async def sample() -> None:
        while True:
            await asyncio.sleep(0.1)
            resident.append(process.memory_info().rss)

    sampler = asyncio.create_task(sample())
    cpu, began = sum(process.cpu_times()[:2]), time.monotonic()
    clients = (one_client(number, target, encoded, load, waits) for number in range(load.connections))
    acknowledged = sum(await asyncio.gather(*clients))
    elapsed, until = time.monotonic() - began, time.monotonic() + REST

    async def grown() -> int:
        return (await end_offsets(bootstrap, TOPIC) - before) * (unit or 1)

    stored = await grown()
    while stored < acknowledged and unit is not None and time.monotonic() < until:
        await asyncio.sleep(0.5)
        stored = await grown()
    cpu = sum(process.cpu_times()[:2]) - cpu
    sampler.cancel()
    if stored != acknowledged and unit is None:
        raise SystemExit(f"acknowledged {acknowledged:,} events, the topic grew by {stored:,}")
    cuts = statistics.quantiles(waits, n=100)
    return {
        "events_per_second": acknowledged / elapsed,
        COST: cpu / stored * 1e6,
        "missing": max(0, acknowledged - stored),
        "resident_max_mb": max(resident) / 1e6,
        "ack_p50_ms": cuts[49] * 1000,
        "ack_p99_ms": cuts[98] * 1000,
        "ack_max_ms": max(waits) * 1000,
    }


def together(phases: Sequence[dict[str, float]]) -> dict[str, float]:
    """Returns the median of each figure."""
    return {name: statistics.median(each[name] for each in phases) for name in phases[0]}


@contextmanager
def kafka(folder: Path) -> Iterator[str]:
    """Gives the address of a broker with the topics as they are by default, which keeps the newest `_KEPT` of each partition."""
    frequent = {"log.segment.bytes": str(_KEPT // 4), "log.retention.check.interval.ms": "5000"}
    broker = EmbeddedKafka(folder / "kafka", properties=frequent)
    broker.start()
    try:
        topics = {**os.environ, **environment("KAFKA", bootstrap_servers=broker.bootstrap)}
        topics |= {**environment("TOPICS", retention_bytes=_KEPT), "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run([sys.executable, "-m", "headrace_common.topics"], env=topics, check=True)
        yield broker.bootstrap
    finally:
        broker.stop()


@contextmanager
def receiver(protocol: str, bootstrap: str, folder: Path, native: str = "auto") -> Iterator[tuple[psutil.Process, int]]:
    """Runs a protocol's receiver on free ports; gives its process and the port that it listens on."""
    port, ops = free_port(), free_port()
    settings = {
        **os.environ,
        **environment("KAFKA", bootstrap_servers=bootstrap),
        **environment("LISTEN", host="127.0.0.1", port=port),
        **environment("OPS", host="127.0.0.1", port=ops),
        "HEADRACE_NATIVE": native,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    if protocol == "logjam":
        settings |= environment("logjam", pull_port=0)
    with running(
        [sys.executable, "-m", "headrace_common", protocol], port, folder / f"{protocol}-{native}.log", settings
    ) as process:
        yield process, port


@contextmanager
def running(
    command: Sequence[str], port: int, log: Path, settings: Mapping[str, str] | None = None
) -> Iterator[psutil.Process]:
    """Runs a server; gives its process when it listens on `port`."""
    with log.open("wb") as said:
        process = subprocess.Popen(command, env=settings, stdout=said, stderr=said)
    try:
        for _ in range(1200):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        else:
            raise SystemExit(log.read_text())
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(90)


def options(about: str | None) -> argparse.ArgumentParser:
    """Returns the parser of what all measures may be told."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dry", action="store_true", help="a trial: write no results")
    return parser


def machine() -> str:
    """Describes the machine on which it runs."""
    return f"Python {sys.version.split()[0]}, {os.cpu_count()} CPUs, shared with the broker and the clients"


def write(name: str, text: str, *, dry: bool) -> None:
    """Prints `text`, and writes it to ``results/<name>.md`` unless it is a trial."""
    print(text)
    if not dry:
        (RESULTS / f"{name}.md").write_text(text + "\n")
