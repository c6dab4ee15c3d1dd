"""The load phase of every receiver's benchmark: a broker, a receiver, clients over real sockets, and what it cost.

The topic's end offsets are compared with what was acknowledged: a difference is a failure, not a figure.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil
from aiokafka import AIOKafkaConsumer, TopicPartition
from headrace_cli.machine.ports import free_port
from headrace_common.operations.settings import environment

from tests.contract.embedded import EmbeddedKafka

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PARTS = (
    "libs/common",
    "services/courier",
    "services/forward",
    "services/logjam",
    "services/lumberjack",
    "services/segment",
)


Results = tuple[str, dict[str, Any], str]
"""Their name, what was measured, and a text with a table of it."""


class Talker(Protocol):
    """One connection's client: a frame, its acknowledgement, the next frame."""

    def frame(self) -> bytes:
        """The next frame."""

    def acknowledged(self, data: bytes) -> bool:
        """Whether the server's next bytes acknowledge it. Ends the benchmark if they say anything wrong."""


@dataclass(frozen=True)
class Load:
    """`connections` clients for `seconds`, frames of `events` events; `rate` events a second in all, 0: what goes."""

    connections: int
    events: int
    seconds: float
    rate: float = 0.0


async def _client(number: int, port: int, talker: Talker, load: Load, until: float, latencies: list[float]) -> int:
    """Sends frames one after the other, each after the former's acknowledgement; the events that were acknowledged."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    pause = load.connections * load.events / load.rate if load.rate else 0.0
    loop = asyncio.get_running_loop()
    events, due = 0, loop.time() + random.Random(number).random() * pause
    while loop.time() < until:
        if pause:
            await asyncio.sleep(max(0.0, due - loop.time()))
            due += pause
        data = talker.frame()
        sent = time.perf_counter()
        writer.write(data)
        while True:
            received = await reader.read(4096)
            if not received:
                raise SystemExit("the receiver closed a connection")
            if talker.acknowledged(received):
                break
        latencies.append(time.perf_counter() - sent)
        events += load.events
    writer.close()
    return events


async def end_offsets(bootstrap: str, topic: str) -> int:
    """The sum of the topic's end offsets."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    try:
        await consumer._client._wait_on_metadata(topic)
        partitions = consumer.partitions_for_topic(topic) or set()
        return sum((await consumer.end_offsets([TopicPartition(topic, p) for p in partitions])).values())
    finally:
        await consumer.stop()


async def run(
    load: Load, new_talker: Callable[[int], Talker], port: int, receiver: psutil.Process, bootstrap: str
) -> dict[str, float]:
    """One phase; `new_talker` makes the client of a connection from its number."""
    before_offsets = await end_offsets(bootstrap, "headrace.events")
    latencies: list[float] = []
    resident = [receiver.memory_info().rss]
    loop = asyncio.get_running_loop()
    cpu = sum(receiver.cpu_times()[:2])
    began = loop.time()
    until = began + load.seconds

    async def sample() -> None:
        while True:
            await asyncio.sleep(0.1)
            resident.append(receiver.memory_info().rss)

    sampler = asyncio.create_task(sample())
    clients = [_client(i, port, new_talker(i), load, until, latencies) for i in range(load.connections)]
    acknowledged = sum(await asyncio.gather(*clients))
    elapsed = loop.time() - began
    cpu = sum(receiver.cpu_times()[:2]) - cpu
    sampler.cancel()
    stored = await end_offsets(bootstrap, "headrace.events") - before_offsets
    if stored != acknowledged:
        raise SystemExit(f"acknowledged {acknowledged:,} events, the topic grew by {stored:,}")
    cuts = statistics.quantiles(latencies, n=100)
    return {
        "events": acknowledged,
        "events_per_second": acknowledged / elapsed,
        "cpu_seconds_per_million": cpu / acknowledged * 1e6,
        "resident_max_mb": max(resident) / 1e6,
        "ack_p50_ms": cuts[49] * 1000,
        "ack_p99_ms": cuts[98] * 1000,
        "ack_max_ms": max(latencies) * 1000,
    }


_KEPT = 256 << 20
"""Bytes of a partition: twenty minutes of load would fill a disk."""


@contextmanager
def kafka(folder: Path) -> Iterator[str]:
    """A broker with the topics as they are by default, which keeps the newest `_KEPT` of each partition; its address."""
    frequent = {"log.segment.bytes": str(_KEPT // 4), "log.retention.check.interval.ms": "5000"}
    broker = EmbeddedKafka(folder / "kafka", properties=frequent)
    broker.start()
    try:
        topics = {**os.environ, **environment("KAFKA", bootstrap_servers=broker.bootstrap)}
        topics.update(environment("TOPICS", retention_bytes=_KEPT))
        topics["PYTHONPATH"] = os.pathsep.join(sys.path)
        subprocess.run([sys.executable, "-m", "headrace_common.topics"], env=topics, check=True)
        yield broker.bootstrap
    finally:
        broker.stop()


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """The repository as it was at `revision`, in a temporary worktree."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), revision], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


@contextmanager
def receiver(
    module: str,
    bootstrap: str,
    folder: Path,
    tree: Path = ROOT,
    variables: Mapping[str, str] | None = None,
    constants: str = "",
    **limits: object,
) -> Iterator[tuple[psutil.Process, int]]:
    """``python -m module`` on free ports, and the port that it listens on. `tree`: whose sources are run. `variables`: more
    settings. `constants`: see `tests.constants.told`.
    """
    more = {**(environment("LIMITS", **limits) if limits else {}), **(variables or {})}
    process, port = _start(module, bootstrap, folder / f"{module}.{tree.name}.log", tree, more, constants)
    try:
        yield psutil.Process(process.pid), port
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:  # one of before may be at what it was sent for minutes
            print(f"{module} of {tree.name} did not end in 30 s and is killed", flush=True)
            process.kill()
            process.wait(30)


def _start(
    module: str, bootstrap: str, log: Path, tree: Path, more: Mapping[str, str], constants: str
) -> tuple[subprocess.Popen[bytes], int]:
    path = [str(tree / part) for part in PARTS] + sys.path
    settings = {
        **os.environ,
        **environment("KAFKA", bootstrap_servers=bootstrap),
        **environment("LISTEN", host="127.0.0.1", port=free_port()),
        **environment("OPS", host="127.0.0.1", port=free_port()),
        **more,
        "PYTHONPATH": os.pathsep.join(path),
    }
    program = ["tests.constants", constants, module] if constants else [module]
    process = subprocess.Popen([sys.executable, "-m", *program], env=settings, stderr=log.open("wb"))
    ready = f"http://127.0.0.1:{settings['HEADRACE_OPS__PORT']}/readyz"
    for _ in range(1200):
        try:
            with urllib.request.urlopen(ready, timeout=2):
                return process, int(settings["HEADRACE_LISTEN__PORT"])
        except OSError:
            time.sleep(0.1)
    process.kill()
    process.wait()
    raise SystemExit(log.read_text())


def import_share(module: str) -> float:
    """Resident MB of a process that has imported the receiver and done nothing."""
    code = (
        f"import {module}.__main__, headrace_common.service.service, psutil; print(psutil.Process().memory_info().rss)"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return int(subprocess.check_output([sys.executable, "-c", code], env=environ)) / 1e6


def machine() -> dict[str, object]:
    """Returns the machine on which it ran."""
    return {
        "cpus": os.cpu_count(),
        "python": sys.version.split()[0],
        "memory_gb": psutil.virtual_memory().total / 1e9,
    }


def write(name: str, result: dict[str, Any], text: str) -> None:
    """Writes `result` and `text` as ``<name>.json`` and ``.md``."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    (RESULTS / f"{name}.md").write_text(text)
