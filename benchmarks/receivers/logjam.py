"""Measures what the Logjam receiver costs beside Forward's, in one run, bodies of 1.3 KB: CPU per event, memory, latency.

A device (PUB) beside Forward's frames of 500 events, producers (ROUTER) beside its frames of one event.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import psutil
import zmq
import zmq.asyncio
from headrace_common.operations.settings import environment
from headrace_logjam.settings import LogjamSection
from headrace_logjam.wire import ACCEPTED, BodyCompression, Meta, compress, encode_meta

from tests.constants import told

from . import load
from .forward import ForwardTalker, frames

AIM = 1.6
"""SUB against Forward's frames of 500 events, ROUTER against its frames of one event."""

ROUNDS = 5
"""Turns of each, so that what else the machine does meets all; the medians are compared."""

WORDS = 168  # make bodies of 1.3 KB
APPS = 16
"""Applications, each with a partition of its own, as each of Forward's connections has one. What a device says of one
application and what it says of many in turn are measured apart: messages of one application make one frame.
"""

MANY = f"SUB, {APPS} applications"
COST = "cpu_seconds_per_million"


class Bench:
    """The bodies, and where to send them."""

    def __init__(self, bodies: list[bytes], bootstrap: str, process: psutil.Process, port: int) -> None:
        self._bodies = bodies
        self._compressed = {method: [compress(method, body) for body in bodies] for method in BodyCompression}
        self._bootstrap = bootstrap
        self._process = process
        self._port = port
        self._sequence = 0

    def message(
        self, number: int, method: BodyCompression, *, apps: int = APPS, device: int = 0, sequence: int = 0
    ) -> list[bytes]:
        """The four frames."""
        body = self._compressed[method][number % len(self._bodies)]
        return [
            b"bench%d-production" % (number % apps),
            b"logs.bench.production",
            body,
            encode_meta(Meta(method, device, 1_795_253_837_000 + number, sequence)),
        ]

    async def publish(
        self, device: zmq.Socket[bytes], method: BodyCompression, count: int, apps: int
    ) -> dict[str, float]:
        """A device publishes this number of messages as fast as it can, until Kafka has stored it."""
        before = await load.end_offsets(self._bootstrap, "headrace.events")
        messages = []
        for number in range(count):
            self._sequence += 1
            messages.append(self.message(number, method, apps=apps, device=1, sequence=self._sequence))
        resident = [self._process.memory_info().rss]
        cpu, began = sum(self._process.cpu_times()[:2]), time.monotonic()
        for message in messages:
            device.send_multipart(message)
        stored = 0
        while stored < count:
            await asyncio.sleep(0.2)
            resident.append(self._process.memory_info().rss)
            stored = await load.end_offsets(self._bootstrap, "headrace.events") - before
        return self._result(count, cpu, began, resident)

    async def produce(self, method: BodyCompression, connections: int, seconds: float) -> dict[str, float]:
        """Producers, each of which waits for its answer before it sends more."""
        before = await load.end_offsets(self._bootstrap, "headrace.events")
        context = zmq.asyncio.Context()
        latencies: list[float] = []
        resident = [self._process.memory_info().rss]
        cpu, began = sum(self._process.cpu_times()[:2]), time.monotonic()

        async def produce(first: int) -> int:
            client = context.socket(zmq.DEALER)
            client.connect(f"tcp://127.0.0.1:{self._port}")
            number = first
            while time.monotonic() - began < seconds:
                sent = time.perf_counter()
                await client.send_multipart([b"", *self.message(number, method)])
                if (await client.recv_multipart())[1] != ACCEPTED:
                    raise SystemExit("a producer was refused")
                latencies.append(time.perf_counter() - sent)
                number += connections
            return (number - first) // connections

        count = sum(await asyncio.gather(*map(produce, range(connections))))
        resident.append(self._process.memory_info().rss)
        result = self._result(count, cpu, began, resident)
        context.destroy(linger=0)
        stored = await load.end_offsets(self._bootstrap, "headrace.events") - before
        if stored != count:
            raise SystemExit(f"answered {count:,} messages, the topic grew by {stored:,}")
        cuts = statistics.quantiles(latencies, n=100)
        return {**result, "ack_p50_ms": cuts[49] * 1000, "ack_p99_ms": cuts[98] * 1000}

    def _result(self, count: int, cpu: float, began: float, resident: list[int]) -> dict[str, float]:
        return {
            "events": count,
            "events_per_second": count / (time.monotonic() - began),
            COST: (sum(self._process.cpu_times()[:2]) - cpu) / count * 1e6,
            "resident_max_mb": max(resident) / 1e6,
        }


def arguments(command: argparse.ArgumentParser) -> None:
    """Declares the options."""
    command.add_argument("--seconds", type=float, default=5)
    command.add_argument("--connections", type=int, default=16)
    command.add_argument("--messages", type=int, default=100_000, help="that a device publishes in a turn")
    command.add_argument("--rounds", type=int, default=ROUNDS)


def run(arguments: argparse.Namespace) -> load.Results:
    """Runs all phases."""
    made, singles = frames(500, WORDS), frames(1, WORDS)
    bodies = [orjson.dumps(record) for entries, _ in made[:16] for _, record in entries]
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    device = context.socket(zmq.XPUB)
    device.setsockopt(zmq.SNDHWM, 0)
    address = f"tcp://127.0.0.1:{device.bind_to_random_port('tcp://127.0.0.1')}"
    variables = environment("logjam", endpoints=json.dumps({"bench": address}), pull_port=0)
    kept = told([(LogjamSection, "endpoint_messages", 1_000_000)])
    with tempfile.TemporaryDirectory() as name, load.kafka(Path(name)) as bootstrap:
        folder = Path(name)
        with (
            load.receiver("headrace_forward", bootstrap, folder) as (forward_process, forward_port),
            load.receiver("headrace_logjam", bootstrap, folder, variables=variables, constants=kept) as (process, port),
        ):
            device.recv()  # it has joined
            bench = Bench(bodies, bootstrap, process, port)

            def forward(events: int) -> dict[str, float]:
                shape = load.Load(arguments.connections, events, arguments.seconds)
                work = made if events > 1 else singles
                run = load.run(shape, lambda n: ForwardTalker(n, work), forward_port, forward_process, bootstrap)
                return asyncio.run(run)

            def sub(method: BodyCompression, apps: int = 1) -> dict[str, float]:
                return asyncio.run(bench.publish(device, method, arguments.messages, apps))

            def router(method: BodyCompression) -> dict[str, float]:
                return asyncio.run(bench.produce(method, arguments.connections, arguments.seconds))

            turns: dict[str, list[dict[str, float]]] = {}
            for number in range(arguments.rounds + 1):
                phases: tuple[tuple[str, Callable[[], dict[str, float]]], ...] = (
                    ("Forward, 500", lambda: forward(500)),
                    ("SUB, as it is", lambda: sub(BodyCompression.NONE)),
                    (MANY, lambda: sub(BodyCompression.NONE, APPS)),
                    ("Forward, 1", lambda: forward(1)),
                    ("ROUTER, as it is", lambda: router(BodyCompression.NONE)),
                )
                for shape, phase in phases:
                    taken = phase()
                    if number:  # the first is a warm-up
                        turns.setdefault(shape, []).append(taken)
            shapes = {shape: _median(taken) for shape, taken in turns.items()}
            for method in list(BodyCompression)[1:]:
                shapes[f"SUB, {method.name.lower()}"] = sub(method)
                shapes[f"ROUTER, {method.name.lower()}"] = router(method)
    context.destroy(linger=0)
    result = {
        "machine": load.machine(),
        "connections": arguments.connections,
        "messages": arguments.messages,
        "body_bytes": statistics.mean(map(len, bodies)),
        "shapes": shapes,
        "turns": {shape: [turn[COST] for turn in taken] for shape, taken in turns.items()},
        "sub_to_forward": shapes["SUB, as it is"][COST] / shapes["Forward, 500"][COST],
        "sub_many_to_forward": shapes[MANY][COST] / shapes["Forward, 500"][COST],
        "router_to_forward": shapes["ROUTER, as it is"][COST] / shapes["Forward, 1"][COST],
        "resident_imports_mb": load.import_share("headrace_logjam"),
    }
    return table(result)


def _median(phases: list[dict[str, float]]) -> dict[str, float]:
    """The phase with the middle cost."""
    return sorted(phases, key=lambda phase: phase[COST])[len(phases) // 2]


def table(result: dict[str, Any]) -> load.Results:
    """The results, and a table of them."""
    rows = ["| shape | CPU-s per million events | events/s | ack p50 / p99 | resident |", "|---|---|---|---|---|"]
    for name, row in result["shapes"].items():
        acks = f"{row['ack_p50_ms']:.1f} / {row['ack_p99_ms']:.1f} ms" if "ack_p50_ms" in row else "none"
        rows.append(
            f"| {name} | {row[COST]:.2f} | {row['events_per_second']:,.0f} | {acks} | {row['resident_max_mb']:.0f} MB |"
        )
    text = (
        f"Logjam beside Forward, bodies of {result['body_bytes']:.0f} bytes, one device, producers of {APPS} applications, "
        f"{result['connections']} producers with one message each on its way, acks=all, zstd; {result['machine']['cpus']} CPUs, "
        "shared with the broker and the "
        "clients. Written by `python -m benchmarks.receivers logjam`.\n\n"
        + "\n".join(rows)
        + f"\n\nMedians of {len(result['turns']['SUB, as it is'])} turns (the compressed ones: one each). SUB against Forward of "
        f"500: {result['sub_to_forward']:.2f} ×, with {APPS} applications {result['sub_many_to_forward']:.2f} ×; "
        f"ROUTER against Forward of 1: {result['router_to_forward']:.2f} × (aim {AIM}). "
        f"Resident, imports alone: {result['resident_imports_mb']:.0f} MB; the device's {result['messages']:,} messages of a "
        "turn come faster than they are stored, and most of them wait in the process.\n"
    )
    return "logjam", result, text
