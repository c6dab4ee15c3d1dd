"""Measures what the Lumberjack receiver costs beside Forward's, in one run: CPU per event, memory, acknowledgement latency.

The same records in every shape; those of v2 have the fields beside that Filebeat's ids are made of. Both receivers run all
the time, and what is compared takes turns, so that whatever else the machine does falls on both.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
from headrace_lumberjack.wire import V1, V2, Replies, compressed, encode, pairs_frame, window

from . import load
from .forward import FRAMES, ForwardTalker, frames

AIMS = {"J in C, 2,048": 3, "J in C, 50": 6}
"""CPU-seconds for a million events, by shape."""


def filebeat(number: int, at: Any, record: dict[str, Any]) -> dict[str, Any]:
    """The record as Filebeat's."""
    milliseconds = at.nanoseconds // 1_000_000
    return {
        "@timestamp": f"2026-11-21T09:30:37.{milliseconds:03d}Z",
        "@metadata": {"beat": "filebeat", "type": "_doc", "version": "8.17.0"},
        "agent": {"id": "7f2b7d0c-42aa", "ephemeral_id": "c1d3a1f0-9b1e", "name": "vm", "type": "filebeat"},
        "log": {"file": {"path": "/var/log/app.log", "inode": "131"}, "offset": number * 300},
        "message": record["log"],
        **{name: value for name, value in record.items() if name != "log"},
    }


def bare(_: int, at: Any, record: dict[str, Any]) -> dict[str, Any]:
    """The record with the least that makes it an event of a Beat; its id is unique."""
    milliseconds = at.nanoseconds // 1_000_000
    return {"@timestamp": f"2026-11-21T09:30:37.{milliseconds:03d}Z", "@metadata": {"beat": "app"}, **record}


def v1_window(records: list[dict[str, Any]]) -> bytes:
    """The records' texts as logstash-forwarder's."""
    data = b"".join(
        pairs_frame(
            1 + index,
            [
                (b"file", b"/var/log/app.log"),
                (b"host", b"vm"),
                (b"offset", b"%d" % (index * 300)),
                (b"line", orjson.dumps(record)),
            ],
        )
        for index, record in enumerate(records)
    )
    return window(len(records), V1) + compressed(data, 3, V1)


class WindowTalker:
    """One window after the other. See `load.Talker`."""

    def __init__(self, number: int, windows: list[bytes], events: int, version: int) -> None:
        self._windows = windows
        self._turn = number
        self._events = events
        self._replies = Replies(version)

    def frame(self) -> bytes:
        """See `load.Talker`."""
        self._turn += 1
        return self._windows[self._turn % len(self._windows)]

    def acknowledged(self, data: bytes) -> bool:
        """See `load.Talker`. Less than the whole is progress, or a sign of life."""
        for number in self._replies.receive(data):
            if number > self._events:
                raise SystemExit(f"acknowledged {number} of {self._events}")
            if number == self._events:
                return True
        return False


def together(phases: list[dict[str, float]]) -> dict[str, float]:
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


def arguments(command: argparse.ArgumentParser) -> None:
    """Declares the options."""
    command.add_argument("--seconds", type=float, default=5)
    command.add_argument("--connections", type=int, default=16)
    command.add_argument("--rate", type=float, default=10_000)
    command.add_argument("--turns", type=int, default=3, help="how often Forward and J in C of 500 take turns")


def run(arguments: argparse.Namespace) -> load.Results:
    """Runs all phases."""
    made = frames(500)
    records = [entry for entries, _ in made for entry in entries]

    def windows(size: int, encoded: Callable[[list[Any]], bytes], count: int = FRAMES) -> list[bytes]:
        total = min(count, len(records) // size)
        return [encoded(records[index * size : (index + 1) * size]) for index in range(total)]

    def v2(level: int, event: Callable[..., dict[str, Any]] = filebeat) -> Callable[[list[Any]], bytes]:
        return lambda entries: encode([event(n, *entry) for n, entry in enumerate(entries)], level=level)

    def v1(entries: list[Any]) -> bytes:
        return v1_window([record for _, record in entries])

    shapes = [
        ("J in C, 500", 500, V2, windows(500, v2(3))),
        ("J in C, 500, bare record", 500, V2, windows(500, v2(3, bare))),
        ("J in C, 2,048", 2048, V2, windows(2048, v2(3))),
        ("J plain, 500", 500, V2, windows(500, v2(0))),
        ("J plain, 2,048", 2048, V2, windows(2048, v2(0))),
        ("J in C, 50", 50, V2, windows(50, v2(3))),
        ("J in C, 1", 1, V2, windows(1, v2(3), 4096)),
        ("v1 in C, 500", 500, V1, windows(500, v1)),
        ("v1 in C, 2,048", 2048, V1, windows(2048, v1)),
    ]
    many = load.Load(arguments.connections, 500, arguments.seconds)
    single, one_each = frames(1), load.Load(arguments.connections, 1, arguments.seconds)
    with (
        tempfile.TemporaryDirectory() as name,
        load.kafka(Path(name)) as bootstrap,
        load.receiver("headrace_forward", bootstrap, Path(name)) as (theirs, their_port),
        load.receiver("headrace_lumberjack", bootstrap, Path(name)) as (process, port),
    ):
        idle = process.memory_info().rss / 1e6

        def forward_phase(shape: load.Load, sent: list[Any]) -> dict[str, float]:
            return asyncio.run(load.run(shape, lambda n: ForwardTalker(n, sent), their_port, theirs, bootstrap))

        def phase(row: tuple[str, int, int, list[bytes]], rate: float = 0.0) -> dict[str, float]:
            _, size, version, sent = row
            shape = load.Load(arguments.connections, size, arguments.seconds, rate)
            return asyncio.run(
                load.run(shape, lambda n: WindowTalker(n, sent, size, version), port, process, bootstrap)
            )

        forward_phase(many, made), phase(shapes[0])  # warm-up
        turns = [(forward_phase(many, made), phase(shapes[0]), phase(shapes[1])) for _ in range(arguments.turns)]
        forward, *compared = (together(list(phases)) for phases in zip(*turns, strict=True))
        phases = dict(zip((row[0] for row in shapes), compared, strict=False))
        for row in shapes[2:]:
            phases[row[0]] = phase(row)
        for row in shapes:
            phases[row[0]]["bytes_per_event"] = sum(map(len, row[3])) / len(row[3]) / row[1]
        forward_1 = forward_phase(one_each, single)
        paced = phase(shapes[0], arguments.rate)
    first = phases[shapes[0][0]]
    result = {
        "machine": load.machine(),
        "connections": arguments.connections,
        "forward": forward,
        "forward_1": forward_1,
        "shapes": phases,
        "paced": {"rate": arguments.rate, **paced},
        "ratio_to_forward": first["cpu_seconds_per_million"] / forward["cpu_seconds_per_million"],
        "bare_ratio_to_forward": phases[shapes[1][0]]["cpu_seconds_per_million"] / forward["cpu_seconds_per_million"],
        "resident_idle_mb": idle,
        "resident_imports_mb": load.import_share("headrace_lumberjack"),
        "value_bytes_per_event": {
            "forward": sum(len(orjson.dumps(record)) for _, record in records[:5000]) / 5000,
            "bare": sum(len(orjson.dumps(bare(n, *entry))) for n, entry in enumerate(records[:5000])) / 5000,
            "v2": sum(len(orjson.dumps(filebeat(n, *entry))) for n, entry in enumerate(records[:5000])) / 5000,
        },
    }
    return table(result)


def table(result: dict[str, Any]) -> load.Results:
    """The results, and a table of them."""
    rows = ["| shape | CPU-s per million events | events/s | ack p50 / p99 | resident |", "|---|---|---|---|---|"]
    forward = {"Forward, 500": result["forward"], "Forward, 1": result["forward_1"]}
    for name, row in {**forward, **result["shapes"]}.items():
        rows.append(
            f"| {name} | {row['cpu_seconds_per_million']:.2f} | {row['events_per_second']:,.0f} "
            f"| {row['ack_p50_ms']:.1f} / {row['ack_p99_ms']:.1f} ms | {row['resident_max_mb']:.0f} MB |"
        )
    paced, size = result["paced"], result["value_bytes_per_event"]
    text = "\n".join(
        (
            f"Lumberjack, {result['connections']} connections with one window each on its way, acks=all, zstd; "
            f"{result['machine']['cpus']} CPUs, shared with the broker and the clients. "
            f"Written by `python -m benchmarks.receivers lumberjack`.",
            "",
            *rows,
            "",
            f"Aims: {'; '.join(f'{aim} CPU-s for {name}' for name, aim in AIMS.items())}. "
            f"J in C of 500 against Forward of 500: {result['ratio_to_forward']:.2f} ×, with Filebeat's fields and "
            f"ids (values of {size['v2']:.0f} against {size['forward']:.0f} bytes); {result['bare_ratio_to_forward']:.2f} × for "
            f"the bare record ({size['bare']:.0f} bytes, unique ids). At {paced['rate']:,.0f} events/s: ack p50 / p99 "
            f"{paced['ack_p50_ms']:.1f} / {paced['ack_p99_ms']:.1f} ms. Resident: idle {result['resident_idle_mb']:.0f} MB, "
            f"imports alone {result['resident_imports_mb']:.0f} MB.",
            "",
        )
    )
    return "lumberjack", result, text
