"""Measures what the Forward receiver costs in Python alone: CPU per event, memory, acknowledgement latency, in one run.

Distinct frames over real sockets. Beside the receiver's figure there is that of the unavoidable work, measured in the same
minute: decoding the same frames and building the same batches, without socket, broker, ids, limits or order.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import random
import statistics
import string
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgpack
import msgspec
import orjson
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatch
from headrace_common.kafka import record_batch
from headrace_common.record.contract import HEADERS, JSON, SPECVERSION
from headrace_common.record.event import Envelope, rfc3339
from headrace_forward.wire import EventTime, ForwardReplies

from . import load

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FORMS = ("bin", "str", "gzip", "zstd", "json")
"""In which entries arrive: packed as a msgpack bin or str, compressed, or as a JSON array."""

FRAMES = 128  # distinct: eight repeating ones compress too well
BATCH = 1 << 20
TAG = "bench.app"
BEGAN = 1_795_253_837
SPEC, ID, SOURCE, TYPE, SUBJECT, TIME, CONTENT_TYPE, ATTRIBUTES = HEADERS


def frames(events: int, length: int = 24) -> list[tuple[list[tuple[EventTime, dict[str, Any]]], bytes]]:
    """Distinct frames of log-like records, with their packed payloads. `length`: words of each; 24 make about 280 bytes."""
    rng = random.Random(7)
    words = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 9))) for _ in range(3000)]

    def record() -> dict[str, Any]:
        return {
            "log": " ".join(rng.choices(words, k=length)),
            "stream": rng.choice(("stdout", "stderr")),
            "kubernetes": {"pod": f"api-{rng.randrange(1 << 24):06x}", "node": f"node-{rng.randrange(40)}"},
            "status": rng.choice((200, 200, 200, 404, 500)),
            "duration": rng.random(),
        }

    made = []
    for _ in range(FRAMES):
        entries = [(EventTime(BEGAN, rng.randrange(10**9)), record()) for _ in range(events)]
        payload = b"".join(msgpack.packb([at.encode(), value]) for at, value in entries)
        made.append((entries, payload))
    return made


def formed(made: list[Any], form: str) -> list[Any]:
    """The same frames, their payloads in another form."""
    if form == "json":
        return [(entries, orjson.dumps([[at.seconds, record] for at, record in entries])) for entries, _ in made]
    if form == "gzip":
        return [(entries, gzip.compress(payload, 6)) for entries, payload in made]
    if form == "zstd":
        return [(entries, zstd.compress(payload)) for entries, payload in made]
    return made


def unavoidable(made: list[Any], events: int, rounds: int) -> dict[str, float]:
    """CPU-s per million events for decoding and batch building alone: with aiokafka's builder, and with our encoder."""
    decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder(list[tuple[msgspec.msgpack.Ext, dict[str, Any]]]).decode
    head = b"\xdc" + events.to_bytes(2, "big")
    source, subject = "/forward/127.0.0.1", TAG
    attributes = b'{"chunk":"0123456789abcdef01234567"}'

    def entries(payload: bytes) -> Any:
        for index, (at, record) in enumerate(decode(head + payload)):
            nanoseconds = int.from_bytes(at.data[4:], "big")
            seconds = int.from_bytes(at.data[:4], "big")
            yield b"d.0123456789abcdef01234567%08x" % index, rfc3339(seconds, nanoseconds), orjson.dumps(record)

    def with_aiokafka() -> None:
        batch = BatchBuilder(BATCH, DefaultRecordBatch.CODEC_ZSTD)
        constant = [
            (SOURCE, source.encode()),
            (TYPE, b"headrace.forward.event"),
            (SUBJECT, subject.encode()),
        ]
        for _ in range(rounds):
            for _, payload in made:
                for name, at, value in entries(payload):
                    headers = [
                        (SPEC, SPECVERSION), (ID, name), *constant, (TIME, at), (CONTENT_TYPE, JSON),
                        (ATTRIBUTES, attributes),
                    ]  # fmt: skip
                    if batch.append(timestamp=1, key=None, value=value, headers=headers) is None:
                        batch._build()
                        batch = BatchBuilder(BATCH, DefaultRecordBatch.CODEC_ZSTD)
                        batch.append(timestamp=1, key=None, value=value, headers=headers)
        batch._build()

    def with_ours() -> None:
        envelope = Envelope("forward", source, subject)
        batch = record_batch.BatchBuilder()
        for _ in range(rounds):
            for _, payload in made:
                for name, at, value in entries(payload):
                    event = envelope.event(name, at, value, attributes)
                    if not batch.add(event, 1, BATCH):
                        batch.seal()
                        batch = record_batch.BatchBuilder()
                        batch.add(event, 1, BATCH)
        batch.seal()

    total = rounds * len(made) * events / 1e6
    figures = {}
    for name, work in (("aiokafka's builder", with_aiokafka), ("our encoder", with_ours)):
        began = time.process_time()
        work()
        figures[name] = (time.process_time() - began) / total
    return figures


class ForwardTalker:
    """One frame after the other, each with a chunk of its own. See `load.Talker`; `form` is one of `FORMS`."""

    def __init__(self, number: int, made: list[Any], form: str = "bin") -> None:
        self._made = made
        self._form = form
        self._turn = number
        self._rng = random.Random(number)
        self._replies = ForwardReplies()
        self._chunk = ""

    def frame(self) -> bytes:
        """See `load.Talker`."""
        entries, payload = self._made[self._turn % len(self._made)]
        self._turn += 1
        self._chunk = f"{self._rng.randrange(1 << 96):024x}\n"
        option = {"size": len(entries), "chunk": self._chunk}
        if self._form == "json":
            return b'["%b",%b,%b]' % (TAG.encode(), payload, orjson.dumps(option))
        if self._form == "str":
            head = b"\x93" + msgpack.packb(TAG) + b"\xdb" + len(payload).to_bytes(4, "big")
            return cast("bytes", head + payload + msgpack.packb(option))
        return cast("bytes", msgpack.packb([TAG, payload, option]))

    def acknowledged(self, data: bytes) -> bool:
        """See `load.Talker`."""
        answers = [orjson.loads(data)["ack"]] if self._form == "json" else self._replies.receive(data)
        if answers and answers != [self._chunk]:
            raise SystemExit(f"acknowledged {answers}, sent {self._chunk!r}")
        return bool(answers)


def arguments(command: argparse.ArgumentParser) -> None:
    """Declares the options."""
    command.add_argument("--seconds", type=float, default=10)
    command.add_argument("--connections", type=int, default=16)
    command.add_argument("--events", type=int, default=500)
    command.add_argument("--rate", type=float, default=10_000)


def run(arguments: argparse.Namespace) -> load.Results:
    """Runs all phases."""
    made = frames(arguments.events)
    with (
        tempfile.TemporaryDirectory() as folder,
        load.kafka(Path(folder)) as bootstrap,
        load.receiver("headrace_forward", bootstrap, Path(folder), variables={"HEADRACE_NATIVE": "off"}) as (
            receiver,
            port,
        ),
    ):
        idle = receiver.memory_info().rss / 1e6

        def phase(rate: float) -> dict[str, float]:
            shape = load.Load(arguments.connections, arguments.events, arguments.seconds, rate)
            return asyncio.run(load.run(shape, lambda number: ForwardTalker(number, made), port, receiver, bootstrap))

        phase(0)  # warm-up
        reference = [unavoidable(made, arguments.events, 2)]
        saturated = phase(0)
        reference.append(unavoidable(made, arguments.events, 2))
        paced = phase(arguments.rate)
    floor = {name: statistics.mean(run[name] for run in reference) for name in reference[0]}
    cheapest = min(floor.values())
    result = {
        "machine": load.machine(),
        "connections": arguments.connections,
        "events_per_frame": arguments.events,
        "bytes_per_frame": len(made[0][1]),
        "unavoidable_cpu_seconds_per_million": floor,
        "saturated": saturated,
        "paced": {"rate": arguments.rate, **paced},
        "ratio_to_unavoidable": saturated["cpu_seconds_per_million"] / cheapest,
        "resident_imports_mb": load.import_share("headrace_forward"),
        "resident_idle_mb": idle,
    }
    return table(result)


def table(result: dict[str, Any]) -> load.Results:
    """The results, and a table of them."""
    saturated, paced = result["saturated"], result["paced"]
    floor = result["unavoidable_cpu_seconds_per_million"]
    rows = [
        ("CPU-s per million events, receiver", f"{saturated['cpu_seconds_per_million']:.2f}"),
        *((f"… unavoidable, {name}", f"{value:.2f}") for name, value in floor.items()),
        ("ratio to the cheaper unavoidable", f"{result['ratio_to_unavoidable']:.2f}"),
        ("events per second, saturated", f"{saturated['events_per_second']:,.0f}"),
        ("acknowledgement p50 / p99, saturated", f"{saturated['ack_p50_ms']:.1f} / {saturated['ack_p99_ms']:.1f} ms"),
        (
            f"acknowledgement p50 / p99 at {paced['rate']:,.0f} events/s",
            f"{paced['ack_p50_ms']:.1f} / {paced['ack_p99_ms']:.1f} ms",
        ),
        ("resident, highest under load", f"{max(saturated['resident_max_mb'], paced['resident_max_mb']):.0f} MB"),
        (
            "resident, idle / imports alone",
            f"{result['resident_idle_mb']:.0f} / {result['resident_imports_mb']:.0f} MB",
        ),
    ]
    text = "\n".join(("| what | figure |", "|---|---|", *(f"| {what} | {figure} |" for what, figure in rows)))
    head = (
        f"Forward in Python alone, {result['connections']} connections, {result['events_per_frame']} events a frame "
        f"({result['bytes_per_frame']:,} bytes), acks=all, zstd; {result['machine']['cpus']} CPUs, shared with the broker "
        "and the clients. Written by `python -m benchmarks.receivers forward`.\n\n"
    )
    return "forward" if result["events_per_frame"] != 1 else "forward-single", result, head + text + "\n"
