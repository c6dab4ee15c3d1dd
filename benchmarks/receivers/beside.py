"""A receiver beside Forward's, in one run.

Both run all the time, and what is compared takes turns, so that whatever else the machine does falls on both.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import load
from .forward import ForwardTalker, frames

Entries = list[tuple[Any, dict[str, Any]]]


@dataclass(frozen=True)
class Shape:
    """Frames of `events` events each; `talker` makes the client with this number."""

    name: str
    events: int
    frames: list[bytes]
    talker: Callable[[int], load.Talker]


def arguments(command: argparse.ArgumentParser) -> None:
    """Declares the options."""
    command.add_argument("--seconds", type=float, default=5)
    command.add_argument("--connections", type=int, default=16)
    command.add_argument("--rate", type=float, default=10_000)
    command.add_argument("--turns", type=int, default=3, help="how often Forward and the first shape take turns")


def measure(
    module: str,
    made: list[tuple[Entries, bytes]],
    shapes: Sequence[Shape],
    arguments: argparse.Namespace,
    turned: int = 1,
) -> dict[str, Any]:
    """Runs all phases: Forward with `made` and the first `turned` shapes in turns, then the others."""
    single = frames(1)
    with (
        tempfile.TemporaryDirectory() as name,
        load.kafka(Path(name)) as bootstrap,
        load.receiver("headrace_forward", bootstrap, Path(name)) as (theirs, their_port),
        load.receiver(module, bootstrap, Path(name)) as (process, port),
    ):
        idle = process.memory_info().rss / 1e6

        def forward_phase(events: int, sent: list[Any]) -> dict[str, float]:
            shape = load.Load(arguments.connections, events, arguments.seconds)
            return asyncio.run(load.run(shape, lambda n: ForwardTalker(n, sent), their_port, theirs, bootstrap))

        def phase(row: Shape, rate: float = 0.0) -> dict[str, float]:
            shape = load.Load(arguments.connections, row.events, arguments.seconds, rate)
            return asyncio.run(load.run(shape, row.talker, port, process, bootstrap))

        forward_phase(500, made), phase(shapes[0])  # warm-up
        turns = [(forward_phase(500, made), *map(phase, shapes[:turned])) for _ in range(arguments.turns)]
        forward, *compared = (together(phases) for phases in zip(*turns, strict=True))
        phases = {row.name: each for row, each in zip(shapes, compared, strict=False)}
        phases |= {row.name: phase(row) for row in shapes[turned:]}
        for row in shapes:
            phases[row.name]["bytes_per_event"] = sum(map(len, row.frames)) / len(row.frames) / row.events
        alone, paced = forward_phase(1, single), phase(shapes[0], arguments.rate)
    cost = "cpu_seconds_per_million"
    return {
        "machine": load.machine(),
        "connections": arguments.connections,
        "forward": forward,
        "forward_1": alone,
        "shapes": phases,
        "paced": {"rate": arguments.rate, **paced},
        "ratios_to_forward": [phases[row.name][cost] / forward[cost] for row in shapes[:turned]],
        "resident_idle_mb": idle,
        "resident_imports_mb": load.import_share(module),
    }


def together(phases: Sequence[dict[str, float]]) -> dict[str, float]:
    """Phases of one kind as one. Latencies are the median phase's, memory the most of all."""
    events = sum(each["events"] for each in phases)
    return {
        "events": events,
        "events_per_second": statistics.median(each["events_per_second"] for each in phases),
        "cpu_seconds_per_million": sum(each["cpu_seconds_per_million"] * each["events"] for each in phases) / events,
        "resident_max_mb": max(each["resident_max_mb"] for each in phases),
        "ack_p50_ms": statistics.median(each["ack_p50_ms"] for each in phases),
        "ack_p99_ms": statistics.median(each["ack_p99_ms"] for each in phases),
    }


def described(title: str, one: str, result: dict[str, Any], compared: str) -> str:
    """A text with the table. `one`: what each connection has on its way; `compared`: what it says of the ratios."""
    rows = ["| shape | CPU-s per million events | events/s | ack p50 / p99 | resident |", "|---|---|---|---|---|"]
    forward = {"Forward, 500": result["forward"], "Forward, 1": result["forward_1"]}
    for name, row in {**forward, **result["shapes"]}.items():
        rows.append(
            f"| {name} | {row['cpu_seconds_per_million']:.2f} | {row['events_per_second']:,.0f} "
            f"| {row['ack_p50_ms']:.1f} / {row['ack_p99_ms']:.1f} ms | {row['resident_max_mb']:.0f} MB |"
        )
    paced = result["paced"]
    head = (
        f"{title}, {result['connections']} connections with one {one} each on its way, acks=all, zstd; "
        f"{result['machine']['cpus']} CPUs, shared with the broker and the clients. "
        f"Written by `python -m benchmarks.receivers {title.lower()}`."
    )
    tail = (
        f"{compared} At {paced['rate']:,.0f} events/s: ack p50 / p99 {paced['ack_p50_ms']:.1f} / {paced['ack_p99_ms']:.1f} ms. "
        f"Resident: idle {result['resident_idle_mb']:.0f} MB, imports alone {result['resident_imports_mb']:.0f} MB."
    )
    return "\n".join((head, "", *rows, "", tail, ""))
