"""What the Forward receiver costs: CPU per event, memory and acknowledgement latency, on this machine, in one run.

Starts an embedded Kafka and the receiver, sends distinct frames over real sockets, compares the topic's end offsets with
what was acknowledged (a difference is a failure, not a figure), and writes ``benchmarks/results/forward.json`` and ``.md``.
Beside the receiver's figure stands that of the unavoidable work, measured in the same minute: decoding the same frames and
building the same batches, without socket, broker, ids, limits or order.

    .venv/bin/python benchmarks/forward.py [--seconds 10] [--connections 16] [--events 500] [--rate 10000]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import string
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import msgpack
import msgspec
import orjson
import psutil
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatch
from headrace_cli.broker import EmbeddedKafka
from headrace_common.event import HEADERS, JSON, SPECVERSION, Envelope, Protocol, rfc3339
from headrace_common.record import Batch
from headrace_common.settings import environment
from headrace_forward.wire import EventTime, Replies

FRAMES = 128  # distinct: eight repeating ones compress too well
BATCH = 1 << 20
RESULTS = Path(__file__).parent / "results"
TAG = "bench.app"
BEGAN = 1_795_253_837


def frames(events: int) -> list[tuple[list[tuple[EventTime, dict[str, Any]]], bytes]]:
    """Distinct frames of log-like records of about 280 bytes, with their packed payloads."""
    rng = random.Random(7)
    words = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 9))) for _ in range(3000)]

    def record() -> dict[str, Any]:
        return {
            "log": " ".join(rng.choices(words, k=24)),
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


def unavoidable(made: list[Any], events: int, rounds: int) -> dict[str, float]:
    """CPU-s per million events for decoding and batch building alone: with aiokafka's builder, and with our encoder."""
    decode = msgspec.msgpack.Decoder(list[tuple[msgspec.msgpack.Ext, dict[str, Any]]]).decode
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
            (HEADERS[2], source.encode()),
            (HEADERS[3], b"headrace.forward.event"),
            (HEADERS[4], subject.encode()),
        ]
        for _ in range(rounds):
            for _, payload in made:
                for name, at, value in entries(payload):
                    headers = [
                        (HEADERS[0], SPECVERSION), (HEADERS[1], name), *constant, (HEADERS[5], at), (HEADERS[6], JSON),
                        (HEADERS[7], attributes),
                    ]  # fmt: skip
                    if batch.append(timestamp=1, key=None, value=value, headers=headers) is None:
                        batch._build()
                        batch = BatchBuilder(BATCH, DefaultRecordBatch.CODEC_ZSTD)
                        batch.append(timestamp=1, key=None, value=value, headers=headers)
        batch._build()

    def with_ours() -> None:
        envelope = Envelope(Protocol.FORWARD, source, subject)
        batch = Batch()
        for _ in range(rounds):
            for _, payload in made:
                for name, at, value in entries(payload):
                    event = envelope.event(name, at, value, attributes)
                    if not batch.add(event, 1, BATCH):
                        batch._build()
                        batch = Batch()
                        batch.add(event, 1, BATCH)
        batch._build()

    total = rounds * len(made) * events / 1e6
    figures = {}
    for name, work in (("aiokafka's builder", with_aiokafka), ("our encoder", with_ours)):
        began = time.process_time()
        work()
        figures[name] = (time.process_time() - began) / total
    return figures


class JsonReplies:
    """As `Replies`, for a connection that speaks JSON and waits for each answer."""

    def __init__(self) -> None:
        self._said = b""

    def receive(self, data: bytes) -> list[str | bytes]:
        """The chunk acknowledged, once its answer is complete."""
        self._said += data
        if not self._said.endswith(b"}"):
            return []
        said, self._said = self._said, b""
        return [json.loads(said)["ack"]]


def message(form: str, entries: Any, payload: bytes, chunk: str) -> bytes:
    """One frame in the form of some client; `payload` is compressed already where the form is."""
    option = {"size": len(entries), "chunk": chunk}
    if form == "json":
        listed = [[at.seconds + at.nanoseconds / 1e9, record] for at, record in entries]
        return json.dumps([TAG, listed, option], separators=(",", ":")).encode()
    if form == "str":  # fluentd's: a str of 32-bit length
        length = len(payload).to_bytes(4, "big")
        return b"\x93" + msgpack.packb(TAG) + b"\xdb" + length + payload + msgpack.packb(option)
    if form != "bin":
        option["compressed"] = form
    return msgpack.packb([TAG, payload, option])


async def client(
    number: int, port: int, made: list[Any], until: float, pause: float, latencies: list[float], form: str
) -> int:
    """Sends frames one after the other, each after the former's acknowledgement; the events that were acknowledged."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    replies = JsonReplies() if form == "json" else Replies()
    rng = random.Random(number)
    loop = asyncio.get_running_loop()
    acknowledged, turn, due = 0, number, loop.time() + rng.random() * pause
    while loop.time() < until:
        if pause:
            await asyncio.sleep(max(0.0, due - loop.time()))
            due += pause
        entries, payload = made[turn % len(made)]
        turn += 1
        chunk = f"{rng.randrange(1 << 96):024x}\n"
        data = message(form, entries, payload, chunk)
        sent = time.perf_counter()
        writer.write(data)
        answers: list[Any] = []
        while not answers:
            received = await reader.read(4096)
            if not received:
                raise SystemExit("the receiver closed a connection")
            answers = replies.receive(received)
        latencies.append(time.perf_counter() - sent)
        if answers != [chunk]:
            raise SystemExit(f"acknowledged {answers}, sent {chunk!r}")
        acknowledged += len(entries)
    writer.close()
    return acknowledged


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


async def load(
    arguments: argparse.Namespace,
    made: list[Any],
    port: int,
    receiver: psutil.Process,
    bootstrap: str,
    rate: float,
    form: str = "bin",
) -> dict[str, float]:
    """One phase: as fast as it goes (`rate` 0), or at `rate` events per second over all connections."""
    pause = arguments.connections * arguments.events / rate if rate else 0.0
    before_offsets = await end_offsets(bootstrap, "headrace.events")
    latencies: list[float] = []
    resident = [receiver.memory_info().rss]
    loop = asyncio.get_running_loop()
    cpu = sum(receiver.cpu_times()[:2])
    began = loop.time()
    until = began + arguments.seconds

    async def sample() -> None:
        while True:
            await asyncio.sleep(0.1)
            resident.append(receiver.memory_info().rss)

    sampler = asyncio.create_task(sample())
    clients = [client(i, port, made, until, pause, latencies, form) for i in range(arguments.connections)]
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
    }


def receiver_process(bootstrap: str, log: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Starts the receiver on free ports; returns it and the port it listens on."""
    settings = {
        **os.environ,
        **environment("KAFKA", bootstrap_servers=bootstrap),
        **environment("LISTEN", host="127.0.0.1", port=_free_port()),
        **environment("OPS", host="127.0.0.1", port=_free_port()),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    process = subprocess.Popen([sys.executable, "-m", "headrace_forward"], env=settings, stderr=log.open("wb"))
    ready = f"http://127.0.0.1:{settings['HEADRACE_OPS__PORT']}/readyz"
    for _ in range(200):
        try:
            with urllib.request.urlopen(ready, timeout=2):
                return process, int(settings["HEADRACE_LISTEN__PORT"])
        except OSError:
            time.sleep(0.1)
    raise SystemExit(log.read_text())


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def import_share() -> float:
    """Resident MB of a process that has imported the receiver and done nothing."""
    code = (
        "import headrace_forward.__main__, headrace_common.service, psutil; print(psutil.Process().memory_info().rss)"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return int(subprocess.check_output([sys.executable, "-c", code], env=environ)) / 1e6


def main() -> None:
    """Runs all phases and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--events", type=int, default=500)
    parser.add_argument("--rate", type=float, default=10_000)
    arguments = parser.parse_args()
    made = frames(arguments.events)
    with tempfile.TemporaryDirectory() as folder:
        broker = EmbeddedKafka(Path(folder) / "kafka")
        broker.start()
        topics = {**os.environ, **environment("KAFKA", bootstrap_servers=broker.bootstrap)}
        topics["PYTHONPATH"] = os.pathsep.join(sys.path)
        subprocess.run([sys.executable, "-m", "headrace_common.topics"], env=topics, check=True)
        process, port = receiver_process(broker.bootstrap, Path(folder) / "receiver.log")
        try:
            receiver = psutil.Process(process.pid)
            idle = receiver.memory_info().rss / 1e6

            def phase(rate: float) -> dict[str, float]:
                return asyncio.run(load(arguments, made, port, receiver, broker.bootstrap, rate))

            phase(0)  # warm-up
            reference = [unavoidable(made, arguments.events, 2)]
            saturated = phase(0)
            reference.append(unavoidable(made, arguments.events, 2))
            paced = phase(arguments.rate)
        finally:
            process.terminate()
            process.wait(30)
            broker.stop()
    floor = {name: statistics.mean(run[name] for run in reference) for name in reference[0]}
    cheapest = min(floor.values())
    result = {
        "machine": {
            "cpus": os.cpu_count(),
            "python": sys.version.split()[0],
            "memory_gb": psutil.virtual_memory().total / 1e9,
        },
        "connections": arguments.connections,
        "events_per_frame": arguments.events,
        "bytes_per_frame": len(made[0][1]),
        "unavoidable_cpu_seconds_per_million": floor,
        "saturated": saturated,
        "paced": {"rate": arguments.rate, **paced},
        "ratio_to_unavoidable": saturated["cpu_seconds_per_million"] / cheapest,
        "resident_imports_mb": import_share(),
        "resident_idle_mb": idle,
    }
    write(result, "forward" if arguments.events != 1 else "forward-single")


def write(result: dict[str, Any], name: str) -> None:
    """The results as JSON and as a table; the table is also printed."""
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
    table = "\n".join(("| what | figure |", "|---|---|", *(f"| {what} | {figure} |" for what, figure in rows)))
    head = (
        f"Forward, {result['connections']} connections, {result['events_per_frame']} events a frame "
        f"({result['bytes_per_frame']:,} bytes), acks=all, zstd; {result['machine']['cpus']} CPUs, shared with the broker "
        "and the clients. Written by `benchmarks/forward.py`.\n\n"
    )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    (RESULTS / f"{name}.md").write_text(head + table + "\n")
    print(head + table)


if __name__ == "__main__":
    main()
