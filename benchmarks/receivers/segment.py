"""Measures the segment service: acknowledgements, the replay of a log, a start from a snapshot, memory per idle writer.

Also acknowledgements beside peers that mean harm (the largest blocks, announced or half sent, and random frames), and of 10,000
writers on 100 connections. On a quiet machine with two cores it takes
less than four minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

import psutil
from aiokafka.structs import TopicPartition
from headrace_common.kafka.producer import Producer
from headrace_common.kafka.record_batch import KeyedBatch
from headrace_common.operations.settings import KafkaSettings
from headrace_segment.client import SegmentReplies
from headrace_segment.replica.snapshot_topic import SnapshotTopic
from headrace_segment.settings import SegmentSection
from headrace_segment.store import records
from headrace_segment.store.fold import Fold
from headrace_segment.store.snapshots import snapshot
from headrace_segment.wire import original as wire
from headrace_segment.wire.codes import HEADER, Kind

from tests.constants import told

from . import load

AIMS = {
    "ack_p50_ms": 3.0,
    "replay_cpu_seconds_per_million": 10.0,
    "ready_from_snapshot_seconds": 2.0,
    "bytes_per_idle_writer": 400.0,
}
MODULE = "headrace_segment"
LEFT_OUT = told([(SegmentSection, "cache_bytes", 0), (SegmentSection, "snapshot_records", 1 << 40)])
EVENT = os.urandom(512).hex().encode()[:1016]
"""With its header, a block of 1 KB."""


class Writer:
    """One writer on a connection of its own, with one block on its way."""

    def __init__(self, segment: str) -> None:
        self._segment = segment
        self._id = os.urandom(16)
        self._replies = SegmentReplies()
        self._heard: list[Any] = []

    async def run(self, port: int, until: float, latencies: list[float]) -> None:
        """Blocks, one after the other, until then (monotonic seconds)."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        encode = wire.MESSAGES.encode
        writer.write(encode(wire.SetupAppend(self._id, self._segment)))
        await self._reply(reader)
        content = encode(wire.Event(EVENT))
        level = 0
        while (sent := time.monotonic()) < until:
            after = level + len(content)
            begin = encode(wire.BeginAppendBlock(self._id, level, len(content)))
            writer.write(begin + content + encode(wire.EndAppendBlock(self._id, after, len(content))))
            answer = await self._reply(reader)
            assert answer == wire.DataAppended(self._id, after)
            latencies.append(time.monotonic() - sent)
            level = after
        writer.close()

    async def _reply(self, reader: asyncio.StreamReader) -> Any:
        while not self._heard:
            self._heard += self._replies.receive(await reader.read(65536))
        return self._heard.pop(0)


async def write_blocks(port: int, writers: int, segments: int, seconds: float) -> list[float]:
    """Latencies of acknowledgements in seconds, after a warm-up. The writers share `segments` segments."""
    for span in (1.0, seconds):
        latencies: list[float] = []
        until = time.monotonic() + span
        await asyncio.gather(
            *(Writer(f"s{number % segments}").run(port, until, latencies) for number in range(writers))
        )
    return latencies


async def crowd(port: int, writers: int) -> dict[str, float]:
    """Writers on 100 connections are set up; then each appends a block, all of them at once, in three rounds."""
    connections = [Crowded(writers // 100) for _ in range(100)]
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.gather(*(each.set_up(port, f"c{number % 8}") for number, each in enumerate(connections)))
    ready = loop.time()
    latencies: list[float] = []
    for _ in range(3):
        await asyncio.gather(*(each.round(latencies) for each in connections))
    done = loop.time()
    for each in connections:
        each.close()
    cuts = percentiles(latencies)
    return {
        "setups_per_second": writers / (ready - began),
        "blocks_per_second": len(latencies) / (done - ready),
        "ack_p50_ms": cuts[49] * 1000,
        "ack_p99_ms": cuts[98] * 1000,
    }


class Crowded:
    """One connection with many writers."""

    def __init__(self, writers: int) -> None:
        self._writers = [os.urandom(16) for _ in range(writers)]
        self._level = 0
        self._replies = SegmentReplies()

    async def set_up(self, port: int, segment: str) -> None:
        """All of them."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        self._writer.write(b"".join(wire.MESSAGES.encode(wire.SetupAppend(each, segment)) for each in self._writers))
        missing = len(self._writers)
        while missing:
            missing -= sum(1 for _ in self._replies.receive(await self._some()))

    async def round(self, latencies: list[float]) -> None:
        """A block of each, and its acknowledgement."""
        encode = wire.MESSAGES.encode
        content = encode(wire.Event(EVENT))
        before, self._level = self._level, self._level + len(content)
        sent = time.monotonic()
        for each in self._writers:
            begin = encode(wire.BeginAppendBlock(each, before, len(content)))
            self._writer.write(begin + content + encode(wire.EndAppendBlock(each, self._level, len(content))))
        waiting = set(self._writers)
        while waiting:
            for answer in self._replies.receive(await self._some()):
                assert answer.level == self._level
                waiting.remove(answer.writer)
                latencies.append(time.monotonic() - sent)

    async def _some(self) -> bytes:
        data = await self._reader.read(65536)
        assert data, "the service has closed"
        return data

    def close(self) -> None:
        """Its writers are idle from here on."""
        self._writer.close()


def beside_harm(port: int, seconds: float) -> list[float]:
    """Latencies of 8 writers of one segment while 110 others mean harm, from a process of their own."""
    others = multiprocessing.Process(target=_harm, args=(port,), daemon=True)
    others.start()
    try:
        return asyncio.run(write_blocks(port, 8, 1, seconds))
    finally:
        others.kill()
        others.join()


def _harm(port: int) -> None:
    async def all_of_them() -> None:
        await asyncio.gather(
            *(_halves(port, number) for number in range(100)), *(_noise(port, number) for number in range(10))
        )

    asyncio.run(all_of_them())


async def _halves(port: int, number: int) -> None:
    """The largest block, again and again: every second peer only announces it, the others send a half and go."""
    name, size = os.urandom(16), 16 * (1 << 20) - 1
    begin = wire.MESSAGES.encode(wire.SetupAppend(name, "harm")) + HEADER.pack(Kind.BEGIN_APPEND_BLOCK, size) + name
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(begin)
            if number % 2:
                await reader.read()  # silent, until it is cut
            for _ in range(128):
                writer.write(bytes(64 << 10))
                await writer.drain()
                await asyncio.sleep(0.2)
        except OSError:
            pass
        finally:
            writer.transport.abort()


async def _noise(port: int, number: int) -> None:
    """Random frames, and a new connection whenever the service has had enough."""
    chance = random.Random(number)
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            while not reader.at_eof():
                body = chance.randbytes(chance.randrange(2000))
                writer.write(HEADER.pack(chance.choice(list(Kind)), len(body)) + body)
                await writer.drain()
                await asyncio.sleep(0.01)
        except OSError:
            pass
        finally:
            writer.transport.abort()


def blocks(count: int) -> list[bytes]:
    """The records of one writer's log."""
    writer, session = os.urandom(16), os.urandom(16)
    made = [records.Open(writer, session, records.Numbering.BYTES, create=True).encode()]
    made += (
        records.Block(writer, session, at * 1024, at * 1024 + 1024, 1, EVENT + bytes(8)).encode() for at in range(count)
    )
    return made


def idle_writers(count: int) -> list[bytes]:
    """The records of writers that were set up once."""
    return [
        records.Open(os.urandom(16), os.urandom(16), records.Numbering.BYTES, create=True).encode()
        for _ in range(count)
    ]


async def fill(kafka: KafkaSettings, segment: str, values: list[bytes]) -> None:
    """Appends to partition 0, whatever the segment's own is: the fold does not ask."""
    producer, key = Producer(kafka), segment.encode()
    await producer.open((kafka.segments_topic,))
    waiting, stamp = deque(values), time.time_ns() // 1_000_000
    while waiting:
        batch = KeyedBatch(1 << 20)
        while waiting and batch.add(key, waiting[0], stamp):
            waiting.popleft()
        await producer.store(TopicPartition(kafka.segments_topic, 0), batch, math.inf)
    await producer.close()


async def write_snapshot(kafka: KafkaSettings, segment: str, values: list[bytes]) -> None:
    """The set that a replica would have written behind these records, the first of partition 0."""
    fold = Fold()
    for offset, value in enumerate(values):
        fold.apply(offset, segment.encode(), value, 1)
    await SnapshotTopic(kafka, 0).write(list(snapshot(fold, 0)))


def started(bootstrap: str, folder: Path) -> dict[str, float]:
    """A start: seconds until it is ready, CPU seconds until then, resident bytes."""
    began = time.monotonic()
    with load.receiver(MODULE, bootstrap, folder, constants=LEFT_OUT) as (process, _):
        seconds = time.monotonic() - began
        times = process.cpu_times()
        return {"seconds": seconds, "cpu": times.user + times.system, "resident": float(process.memory_info().rss)}


def arguments(command: argparse.ArgumentParser) -> None:
    """Declares the options."""
    command.add_argument("--seconds", type=float, default=5)
    command.add_argument("--records", type=int, default=200_000)
    command.add_argument("--writers", type=int, default=50_000)
    command.add_argument("--crowd", type=int, default=10_000)


def run(arguments: argparse.Namespace) -> load.Results:
    """Runs it all; see the module."""
    load_average = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with load.kafka(folder) as bootstrap:
            kafka = KafkaSettings(bootstrap_servers=bootstrap)
            empty = [started(bootstrap, folder) for _ in range(3)]
            with load.receiver(MODULE, bootstrap, folder, constants=LEFT_OUT) as (process, port):
                phases = {}
                for writers, segments in ((1, 1), (8, 1), (8, 8), (64, 1), (64, 64)):
                    before = cpu(process)
                    latencies = asyncio.run(write_blocks(port, writers, segments, arguments.seconds))
                    cuts = percentiles(latencies)
                    phases[f"{writers} / {segments}"] = {
                        "ack_p50_ms": cuts[49] * 1000,
                        "ack_p99_ms": cuts[98] * 1000,
                        "blocks_per_second": len(latencies) / arguments.seconds,
                        "cpu_ms_per_block": (cpu(process) - before) / len(latencies) * 1000,
                    }
                resident = process.memory_info().rss
                together = asyncio.run(crowd(port, arguments.crowd))
                together["resident_grown_mb"] = (process.memory_info().rss - resident) / 1e6
            with load.receiver(MODULE, bootstrap, folder, constants=LEFT_OUT) as (process, port):
                cuts = percentiles(beside_harm(port, arguments.seconds))
                harm = {
                    "ack_p50_ms": cuts[49] * 1000,
                    "ack_p99_ms": cuts[98] * 1000,
                    "resident_mb": process.memory_info().rss / 1e6,
                }
        with tempfile.TemporaryDirectory() as other, load.kafka(Path(other)) as bootstrap:
            kafka = KafkaSettings(bootstrap_servers=bootstrap)
            bare = started(bootstrap, folder)
            log = blocks(arguments.records)
            asyncio.run(fill(kafka, "s", log))
            replay = [started(bootstrap, folder) for _ in range(3)]
            asyncio.run(write_snapshot(kafka, "s", log))
            snapshots = [started(bootstrap, folder) for _ in range(3)]
        with tempfile.TemporaryDirectory() as other, load.kafka(Path(other)) as bootstrap:
            kafka = KafkaSettings(bootstrap_servers=bootstrap)
            without = started(bootstrap, folder)
            idle = idle_writers(arguments.writers)
            asyncio.run(fill(kafka, "s", idle))
            asyncio.run(write_snapshot(kafka, "s", idle))
            known = started(bootstrap, folder)
    result = {
        "machine": load.machine(),
        "load_average": load_average,
        "phases": phases,
        "ack_p50_ms": phases["8 / 1"]["ack_p50_ms"],
        "crowd": {"writers": arguments.crowd, **together},
        "beside_harm": harm,
        "start_empty_seconds": statistics.median(each["seconds"] for each in empty),
        "replay_cpu_seconds_per_million": (statistics.median(each["cpu"] for each in replay) - bare["cpu"])
        / arguments.records
        * 1e6,
        "replay_records": arguments.records,
        "ready_after_replay_seconds": statistics.median(each["seconds"] for each in replay),
        "ready_from_snapshot_seconds": statistics.median(each["seconds"] for each in snapshots),
        "writers": arguments.writers,
        "ready_with_writers_seconds": known["seconds"],
        "bytes_per_idle_writer": (known["resident"] - without["resident"]) / arguments.writers,
    }
    return table(result)


def percentiles(latencies: list[float]) -> list[float]:
    """The 1st to the 99th. Ends the benchmark if hardly anything was acknowledged."""
    if len(latencies) < 2:
        raise SystemExit(f"{len(latencies)} acknowledgements: the machine is too busy, or --seconds too short")
    return statistics.quantiles(latencies, n=100)


def cpu(process: psutil.Process) -> float:
    """CPU seconds so far."""
    times = process.cpu_times()
    return times.user + times.system


def table(result: dict[str, Any]) -> load.Results:
    """The results, and a table of them."""
    many, harm = result["crowd"], result["beside_harm"]
    rows = ["| writers / segments | ack p50 / p99 | blocks/s | CPU ms per block |", "|---|---|---|---|"]
    for writers, row in result["phases"].items():
        rows.append(
            f"| {writers} | {row['ack_p50_ms']:.1f} / {row['ack_p99_ms']:.1f} ms | {row['blocks_per_second']:,.0f} "
            f"| {row['cpu_ms_per_block']:.2f} |"
        )
    text = (
        "The segment service, one replica, a block of 1 KB on its way for each writer, events first; "
        f"{result['machine']['cpus']} CPUs, shared with the broker and the clients; "
        f"load average {result['load_average']:.1f}. Written by `python -m benchmarks.receivers segment`.\n\n"
        + "\n".join(rows)
        + f"\n\n{many['writers']:,} writers on 100 connections, a block of each at once: "
        f"{many['setups_per_second']:,.0f} set up and {many['blocks_per_second']:,.0f} blocks a second, p50 / p99 "
        f"{many['ack_p50_ms']:,.0f} / {many['ack_p99_ms']:,.0f} ms, {many['resident_grown_mb']:.0f} MB more than before. "
        "8 / 1 beside 100 peers with announced or half sent blocks of 16 MiB and 10 with random frames: p50 / p99 "
        f"{harm['ack_p50_ms']:.1f} / {harm['ack_p99_ms']:.1f} ms, {harm['resident_mb']:.0f} MB resident."
        + f"\n\nReplay of {result['replay_records']:,} records of 1 KB: {result['replay_cpu_seconds_per_million']:.1f} CPU-s per "
        f"million (aim {AIMS['replay_cpu_seconds_per_million']:.0f}). From the process's start until it is ready: "
        f"{result['start_empty_seconds']:.1f} s with an empty log, "
        f"{result['ready_after_replay_seconds']:.1f} s with that replay, "
        f"{result['ready_from_snapshot_seconds']:.1f} s from a snapshot of it (aim {AIMS['ready_from_snapshot_seconds']:.0f}), "
        f"{result['ready_with_writers_seconds']:.1f} s from one of {result['writers']:,} writers. Aim of p50, 8 / 1: "
        f"{AIMS['ack_p50_ms']:.0f} ms. Memory per idle writer: {result['bytes_per_idle_writer']:.0f} bytes (aim "
        f"{AIMS['bytes_per_idle_writer']:.0f}).\n"
    )
    return "segment", result, text
