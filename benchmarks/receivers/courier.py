"""Measures what the Courier receiver costs beside Forward's, in one run: CPU per event, memory, acknowledgement latency.

The same records in every shape, with the fields beside that log-courier adds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

import orjson
from headrace_courier.replies import Acknowledged, Replies
from headrace_courier.wire import NONCE_BYTES, evnt, jdat

from . import load
from .forward import FRAMES, ForwardTalker, frames

AIM = 3
"""CPU-seconds for a million events in JDATs of 500."""

ROUNDS = 3
"""Forward and JDAT of 500 in turns, so that what else the machine does meets both; the medians are compared."""


def courier(number: int, at: Any, record: dict[str, Any]) -> bytes:
    """The record as log-courier's."""
    return orjson.dumps(
        {
            "@timestamp": f"2026-11-21T09:30:37.{at.nanoseconds:09d}Z",
            "host": "vm",
            "path": "/var/log/app.log",
            "offset": number * 300,
            "message": record["log"],
            **{name: value for name, value in record.items() if name != "log"},
        }
    )


class PayloadTalker:
    """One payload after the other, each with a nonce of its own. See `load.Talker`."""

    def __init__(self, number: int, payloads: list[bytes], events: int) -> None:
        self._payloads = payloads
        self._turn = number
        self._events = events
        self._replies = Replies()
        self._nonce = b""

    def frame(self) -> bytes:
        """See `load.Talker`. Nonces begin behind type and length."""
        self._turn += 1
        payload = self._payloads[self._turn % len(self._payloads)]
        self._nonce = os.urandom(NONCE_BYTES)
        return payload[:8] + self._nonce + payload[8 + NONCE_BYTES :]

    def acknowledged(self, data: bytes) -> bool:
        """See `load.Talker`. Less than the whole is progress, or a sign of life."""
        for reply in self._replies.receive(data):
            if not isinstance(reply, Acknowledged) or reply.nonce != self._nonce or reply.count > self._events:
                raise SystemExit(f"said {reply} to {self._events} events of {self._nonce.hex()}")
            if reply.count == self._events:
                return True
        return False


def arguments(command: argparse.ArgumentParser) -> None:
    """Declares the options."""
    command.add_argument("--seconds", type=float, default=5)
    command.add_argument("--connections", type=int, default=16)
    command.add_argument("--rate", type=float, default=10_000)


def run(arguments: argparse.Namespace) -> load.Results:
    """Runs all phases."""
    made = frames(500)
    records = [entry for entries, _ in made for entry in entries]
    events = [courier(number, *entry) for number, entry in enumerate(records)]

    def payloads(size: int, encode: Any, count: int = FRAMES) -> list[bytes]:
        total = min(count, len(events) // size)
        return [encode(bytes(NONCE_BYTES), events[n * size : (n + 1) * size]) for n in range(total)]

    shapes = [
        ("JDAT, 500", 500, payloads(500, jdat)),
        ("EVNT, 500", 500, payloads(500, evnt)),
        ("JDAT, 1", 1, payloads(1, jdat, 4096)),
        ("EVNT, 1", 1, payloads(1, evnt, 4096)),
    ]
    with tempfile.TemporaryDirectory() as name, load.kafka(Path(name)) as bootstrap:
        folder = Path(name)
        with (
            load.receiver("headrace_forward", bootstrap, folder) as (forward_process, forward_port),
            load.receiver("headrace_courier", bootstrap, folder) as (process, port),
        ):
            idle = process.memory_info().rss / 1e6

            def forward_phase() -> dict[str, float]:
                shape = load.Load(arguments.connections, 500, arguments.seconds)
                work = load.run(shape, lambda n: ForwardTalker(n, made), forward_port, forward_process, bootstrap)
                return asyncio.run(work)

            def phase(row: tuple[str, int, list[bytes]], rate: float = 0.0) -> dict[str, float]:
                _, size, sent = row
                shape = load.Load(arguments.connections, size, arguments.seconds, rate)
                return asyncio.run(load.run(shape, lambda n: PayloadTalker(n, sent, size), port, process, bootstrap))

            forward_phase()  # warm-up
            phase(shapes[0])
            rounds = [(forward_phase(), phase(shapes[0])) for _ in range(ROUNDS)]
            singles = frames(1)
            alone = load.Load(arguments.connections, 1, arguments.seconds)
            work = load.run(alone, lambda n: ForwardTalker(n, singles), forward_port, forward_process, bootstrap)
            forward_single = asyncio.run(work)
            forward, first = (_median([each[side] for each in rounds]) for side in (0, 1))
            phases = {shapes[0][0]: first, **{row[0]: phase(row) for row in shapes[1:]}}
            paced = phase(shapes[0], arguments.rate)
    result = {
        "machine": load.machine(),
        "connections": arguments.connections,
        "forward": forward,
        "forward_single": forward_single,
        "shapes": phases,
        "rounds": [[side["cpu_seconds_per_million"] for side in each] for each in rounds],
        "paced": {"rate": arguments.rate, **paced},
        "ratio_to_forward": first["cpu_seconds_per_million"] / forward["cpu_seconds_per_million"],
        "resident_idle_mb": idle,
        "resident_imports_mb": load.import_share("headrace_courier"),
        "value_bytes_per_event": {
            "forward": statistics.mean(len(orjson.dumps(record)) for _, record in records[:5000]),
            "courier": statistics.mean(map(len, events[:5000])),
        },
    }
    return table(result)


def _median(phases: list[dict[str, float]]) -> dict[str, float]:
    """The phase with the middle cost."""
    return sorted(phases, key=lambda phase: phase["cpu_seconds_per_million"])[len(phases) // 2]


def table(result: dict[str, Any]) -> load.Results:
    """The results, and a table of them."""
    rows = ["| shape | CPU-s per million events | events/s | ack p50 / p99 | resident |", "|---|---|---|---|---|"]
    forward = {"Forward, 500": result["forward"], "Forward, 1": result["forward_single"]}
    for name, row in {**forward, **result["shapes"]}.items():
        rows.append(
            f"| {name} | {row['cpu_seconds_per_million']:.2f} | {row['events_per_second']:,.0f} "
            f"| {row['ack_p50_ms']:.1f} / {row['ack_p99_ms']:.1f} ms | {row['resident_max_mb']:.0f} MB |"
        )
    paced, size = result["paced"], result["value_bytes_per_event"]
    text = (
        f"Courier, {result['connections']} connections with one payload each on its way, acks=all, zstd; "
        f"{result['machine']['cpus']} CPUs, shared with the broker and the clients. "
        f"Written by `python -m benchmarks.receivers courier`.\n\n"
        + "\n".join(rows)
        + f"\n\nAim: {AIM} CPU-s for JDAT of 500. Against Forward of 500, medians of {len(result['rounds'])} turns: "
        f"{result['ratio_to_forward']:.2f} × with values of {size['courier']:.0f} against {size['forward']:.0f} bytes. "
        f"At {paced['rate']:,.0f} events/s: "
        f"ack p50 / p99 {paced['ack_p50_ms']:.1f} / {paced['ack_p99_ms']:.1f} ms. Resident: idle "
        f"{result['resident_idle_mb']:.0f} MB, imports alone {result['resident_imports_mb']:.0f} MB.\n"
    )
    return "courier", result, text
