"""Measures what the inputs that hang or abort Logjam's own tools do to the receiver: time and memory for each, on this machine.

A producer sends each of them, waits for its answer, and the next; the largest time of some turns counts, and by how much the
process has grown meanwhile.
"""

from __future__ import annotations

import argparse
import struct
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import snappy
import zmq
from headrace_logjam.wire import ACCEPTED, REFUSED, BodyCompression, Meta, compress, encode_meta

from . import load

MIB = 1 << 20
APP_ENV, TOPIC = b"bomb-production", b"logs.bomb.production"
LARGE = b'{"x":"' + bytes(b"a" * (60 * MIB)) + b'"}'


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes((number & 127 | 128,))
        number >>= 7
    return found + bytes((number,))


BOMBS: dict[str, tuple[int, Callable[[], bytes], bytes]] = {
    "zlib: no zlib stream (hangs logjam-dump)": (BodyCompression.ZLIB, lambda: b"this is no zlib stream", REFUSED),
    "zlib: cut in the middle": (BodyCompression.ZLIB, lambda: zlib.compress(LARGE[:100_000])[:-10], REFUSED),
    "zlib: wrong checksum": (BodyCompression.ZLIB, lambda: zlib.compress(b'{"a":1}')[:-4] + b"oops", REFUSED),
    "zlib: 60 MiB of one letter": (BodyCompression.ZLIB, lambda: zlib.compress(LARGE, 9), ACCEPTED),
    "snappy: announces 4 GiB (aborts)": (BodyCompression.SNAPPY, lambda: _varint((1 << 32) - 1) + b"\0a", REFUSED),
    "snappy: 60 MiB of one letter": (BodyCompression.SNAPPY, lambda: bytes(snappy.compress(LARGE)), ACCEPTED),
    "snappy: garbage": (BodyCompression.SNAPPY, lambda: b"\x20" + bytes(range(200, 256)), REFUSED),
    "lz4: announces 4 GiB (aborts)": (
        BodyCompression.LZ4,
        lambda: struct.pack(">I", (1 << 32) - 1) + b"\x10a",
        REFUSED,
    ),
    "lz4: 60 MiB of one letter": (BodyCompression.LZ4, lambda: compress(BodyCompression.LZ4, LARGE), ACCEPTED),
    "lz4: three bytes (crashes Go's)": (BodyCompression.LZ4, lambda: b"abc", REFUSED),
    "method 9": (9, lambda: b"{}", REFUSED),
    "as it is: 4 MiB": (BodyCompression.NONE, lambda: LARGE[: 4 * MIB - 2] + b'"}', ACCEPTED),
    "as it is: nested 1,000,000 deep": (BodyCompression.NONE, lambda: b"[" * MIB, REFUSED),
    "as it is: objects 1,000 deep": (BodyCompression.NONE, lambda: b'{"a":' * 1000 + b"1" + b"}" * 1000, ACCEPTED),
}
"""Method, body, and what the producer is told: what is sound and too large, or too deep, is accepted into quarantine."""


def measure(client: zmq.Socket[bytes], process: psutil.Process, name: str, turns: int) -> dict[str, Any]:
    """The largest time and growth."""
    method, make, expected = BOMBS[name]
    message = [b"", APP_ENV, TOPIC, make(), encode_meta(Meta(method))]
    before = process.memory_info().rss
    most, done = [before], threading.Event()

    def sample() -> None:
        while not done.wait(0.002):
            most[0] = max(most[0], process.memory_info().rss)

    watching = threading.Thread(target=sample)
    watching.start()
    times, cpu = [], sum(process.cpu_times()[:2])
    for _ in range(turns):
        began = time.perf_counter()
        client.send_multipart(message)
        _, answer = client.recv_multipart()
        times.append(time.perf_counter() - began)
        if answer != expected:
            raise SystemExit(f"{name}: {answer!r}")
    done.set()
    watching.join()
    return {
        "bytes": len(message[3]),
        "answer": expected.decode(),
        "ms": max(times) * 1000,
        "cpu_ms": (sum(process.cpu_times()[:2]) - cpu) / turns * 1000,
        "grown_mb": (most[0] - before) / 1e6,
    }


def arguments(command: argparse.ArgumentParser) -> None:
    """Declares the options."""
    command.add_argument("--turns", type=int, default=5)


def run(arguments: argparse.Namespace) -> load.Results:
    """Sends all of them."""
    with (
        tempfile.TemporaryDirectory() as name,
        load.kafka(Path(name)) as bootstrap,
        load.receiver("headrace_logjam", bootstrap, Path(name)) as (process, port),
        zmq.Context() as context,
        context.socket(zmq.DEALER) as client,
    ):
        client.setsockopt(zmq.LINGER, 0)
        client.connect(f"tcp://127.0.0.1:{port}")
        plain = [b"", APP_ENV, TOPIC, b"{}", encode_meta(Meta())]
        for _ in range(20):  # warm-up
            client.send_multipart(plain)
            client.recv_multipart()
        rows = {bomb: measure(client, process, bomb, arguments.turns) for bomb in BOMBS}
    return table({"machine": load.machine(), "turns": arguments.turns, "bombs": rows})


def table(result: dict[str, Any]) -> load.Results:
    """The results, and a table of them."""
    rows = ["| body | bytes | answer | CPU | answered within | grown |", "|---|---|---|---|---|---|"]
    for name, row in result["bombs"].items():
        rows.append(
            f"| {name} | {row['bytes']:,} | {row['answer'][:3]} | {row['cpu_ms']:.0f} ms | {row['ms']:.0f} ms "
            f"| {max(0.0, row['grown_mb']):.0f} MB |"
        )
    text = (
        f"Bodies that hang or abort Logjam's own tools, and others that mean to, sent to the Logjam receiver; the largest of "
        f"{result['turns']} turns, with Kafka's answer. Written by `python -m benchmarks.receivers logjam-bombs`.\n\n"
        + "\n".join(rows)
        + "\n"
    )
    return "logjam-bombs", result, text
