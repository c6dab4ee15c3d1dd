"""Measures what the Lumberjack receiver costs beside Forward's, in one run: CPU per event, memory, acknowledgement latency.

The same records in every shape; those of v2 have the fields beside that Filebeat's ids are made of.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import orjson
from headrace_lumberjack.wire import V1, V2, LumberjackReplies, compressed, encode, pairs_frame, window

from . import beside, load
from .beside import Shape, arguments
from .forward import FRAMES, frames

__all__ = ["arguments", "run"]

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
        self._replies = LumberjackReplies(version)

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


def run(arguments: argparse.Namespace) -> load.Results:
    """Runs all phases."""
    made = frames(500)
    records = [entry for entries, _ in made for entry in entries]

    def v2(level: int, event: Callable[..., dict[str, Any]] = filebeat) -> Callable[[list[Any]], bytes]:
        return lambda entries: encode([event(n, *entry) for n, entry in enumerate(entries)], level=level)

    def v1(entries: list[Any]) -> bytes:
        return v1_window([record for _, record in entries])

    def shape(name: str, size: int, encoded: Callable[[list[Any]], bytes], count: int = FRAMES) -> Shape:
        total = min(count, len(records) // size)
        windows = [encoded(records[index * size : (index + 1) * size]) for index in range(total)]
        return Shape(name, size, windows, lambda n: WindowTalker(n, windows, size, V1 if encoded is v1 else V2))

    shapes = [
        shape("J in C, 500", 500, v2(3)),
        shape("J in C, 500, bare record", 500, v2(3, bare)),
        shape("J in C, 2,048", 2048, v2(3)),
        shape("J plain, 500", 500, v2(0)),
        shape("J plain, 2,048", 2048, v2(0)),
        shape("J in C, 50", 50, v2(3)),
        shape("J in C, 1", 1, v2(3), 4096),
        shape("v1 in C, 500", 500, v1),
        shape("v1 in C, 2,048", 2048, v1),
    ]
    result = beside.measure("headrace_lumberjack", made, shapes, arguments, turned=2)
    result["value_bytes_per_event"] = size = {
        "forward": sum(len(orjson.dumps(record)) for _, record in records[:5000]) / 5000,
        "bare": sum(len(orjson.dumps(bare(n, *entry))) for n, entry in enumerate(records[:5000])) / 5000,
        "v2": sum(len(orjson.dumps(filebeat(n, *entry))) for n, entry in enumerate(records[:5000])) / 5000,
    }
    ours, bares = result["ratios_to_forward"]
    compared = (
        f"Aims: {'; '.join(f'{aim} CPU-s for {name}' for name, aim in AIMS.items())}. J in C of 500 against Forward of 500: "
        f"{ours:.2f} ×, with Filebeat's fields and ids (values of {size['v2']:.0f} against {size['forward']:.0f} bytes); "
        f"{bares:.2f} × for the bare record ({size['bare']:.0f} bytes, unique ids)."
    )
    return "lumberjack", result, beside.described("Lumberjack", "window", result, compared)
