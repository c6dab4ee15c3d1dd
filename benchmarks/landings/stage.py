"""Provides what every measure of landing uses: the topic, the batches, the CPU of each, and the proof.

CPU is that of the process tree without the broker, from the end of one batch to the end of the next. After each run of the job
the exactly-once proof must hold and the rows must be right; otherwise there is no figure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import shutil
import statistics
import string
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyspark
from aiokafka import AIOKafkaProducer
from headrace_cli.machine.jars import jars, listed
from headrace_cli.machine.java import java_home
from headrace_cli.verbs import query
from headrace_common.operations import log as logs
from headrace_common.operations.settings import KafkaSettings, LogSettings, TopicSettings
from headrace_common.record.contract import HEADERS
from headrace_common.record.event import rfc3339_ms
from headrace_common.topics import ensure
from headrace_lake.configuration.settings import LakeProcessSettings, LakeSettings
from headrace_lake.job import Job
from headrace_lake.kafka.source import source_options
from headrace_lake.landing.landing import BatchResult
from headrace_lake.spark.engine import session
from headrace_lake.upkeep.metrics import LakeMetrics
from headrace_lake.upkeep.operations import LakeHealth
from headrace_reader.proof import exactly_once
from pyspark.sql import DataFrame, SparkSession

from tests.contract.embedded import EmbeddedKafka

RESULTS = Path(__file__).parent.parent / "results"
PARTITIONS = 4
PER_FRAME = 500
RESENT = 100
"""One event in this many is a resend."""

BACK = 1500
"""Resends repeat events from up to this many frames ago: from this batch, or from one of the last four."""


class Meter:
    """CPU seconds, batch by batch, of this process and its descendants, without the broker."""

    def __init__(self, broker: int) -> None:
        self._broker = broker
        self._last = 0.0
        self.batches: list[tuple[int, float]] = []  # records, CPU seconds

    def start(self) -> None:
        self._last = self._read()
        self.batches = []

    def batch(self, records: int) -> None:
        now = self._read()
        self.batches.append((records, now - self._last))
        self._last = now

    def per_million(self, size: int) -> float:
        """The median of the full batches, without the first, which also includes the query's start."""
        full = [seconds / records * 1e6 for records, seconds in self.batches[1:] if records > size * 0.9]
        return statistics.median(full)

    def _read(self) -> float:
        me = psutil.Process()
        total = 0.0
        for process in (me, *me.children(recursive=True)):
            try:
                if process.pid != self._broker and self._broker not in (p.pid for p in process.parents()):
                    times = process.cpu_times()
                    total += times.user + times.system
            except psutil.NoSuchProcess:
                continue
        return total


async def fill(kafka: KafkaSettings, events: int, resent: int = PER_FRAME // RESENT) -> int:
    """Sends `events` different events with eight headers, and `resent` of earlier ones in each frame.

    Returns the median size of the values.
    """
    await ensure(kafka, TopicSettings(events_partitions=PARTITIONS, segments_partitions=0))
    rng = random.Random(7)
    words = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 9))) for _ in range(3000)]
    values = [
        json.dumps(
            {
                "log": " ".join(rng.choices(words, k=24)),
                "stream": rng.choice(("stdout", "stderr")),
                "pod": f"api-{rng.randrange(1 << 24):06x}",
                "status": rng.choice((200, 200, 200, 404, 500)),
                "duration": rng.random(),
            }
        ).encode()
        for _ in range(20_000)
    ]
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, enable_idempotence=True, acks="all", compression_type="zstd",
        max_batch_size=1 << 20,
    )  # fmt: skip
    await producer.start()
    now = int(time.time() * 1000)
    frames = -(-events // PER_FRAME)
    try:
        for number in range(frames):
            size = min(PER_FRAME, events - number * PER_FRAME)
            frame = [(number, index) for index in range(size)]
            if number:
                earlier = rng.randrange(max(0, number - BACK), number)
                frame += [(earlier, rng.randrange(PER_FRAME)) for _ in range(resent)]
            batch = producer.create_batch()
            for owner, index in frame:
                batch.append(
                    key=None,
                    value=values[(owner * PER_FRAME + index) % len(values)],
                    timestamp=now,
                    headers=_headers(owner, index, now),
                )
            batch.close()
            await (await producer.send_batch(batch, kafka.events_topic, partition=number % PARTITIONS))
    finally:
        await producer.stop()
    return round(statistics.median(map(len, values)))


def _headers(frame: int, index: int, now: int) -> list[tuple[str, bytes]]:
    head = (
        b"1.0", b"d.%024x%08x" % (frame * 7919, index), b"/forward/host-%d.example.org" % (frame % 97),
        b"headrace.forward.event", b"app.web.%d" % (frame % 31),
        rfc3339_ms(now + frame * PER_FRAME + index)[:-1] + b"123456Z", b"application/json",
        b'{"chunk":"%016x","index":%d}' % (frame, index),
    )  # fmt: skip
    return list(zip(HEADERS, head, strict=True))


def in_batches(
    spark: SparkSession,
    kafka: KafkaSettings,
    size: int,
    checkpoint: Path,
    meter: Meter,
    act: Callable[[DataFrame], None],
) -> None:
    """Reads the topic in batches of `size` records, and does `act` with each."""
    names = (kafka.events_topic, kafka.quarantine_topic)
    starting = {
        name: dict.fromkeys(map(str, range(count)), -2) for name, count in zip(names, (PARTITIONS, 3), strict=True)
    }

    def each(rows: DataFrame, _: int) -> None:
        act(rows)
        meter.batch(size)

    records = spark.readStream.format("kafka").options(**source_options(kafka, starting, size)).load()
    query = records.writeStream.foreachBatch(each).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    meter.batches.pop()  # the last batch is not full


class _Health(LakeHealth):
    def __init__(self, meter: Meter) -> None:
        super().__init__(LakeMetrics())
        self._meter = meter
        self.last: BatchResult | None = None

    def landed(self, result: BatchResult) -> None:
        super().landed(result)
        self.last = result
        self._meter.batch(result.landed.records.total())


def land(
    spark: SparkSession,
    kafka: KafkaSettings,
    size: int,
    folder: Path,
    meter: Meter,
    settings: dict[str, Any],
) -> BatchResult | None:
    """Lands the topic with the job; returns the last batch."""
    lake = LakeSettings(
        path=str(folder / "lake"), checkpoint=str(folder / "checkpoint"), batch_records=size, **settings
    )
    health = _Health(meter)
    log = logs.configure(LogSettings(level="warning"), "landing")
    Job(spark, LakeProcessSettings(kafka=kafka, lake=lake), once=True, log=log, health=health).run()
    return health.last


def prove(lake: Path, events: int, *, plain: bool) -> None:
    """Raises SystemExit unless the proof holds and, except with `plain`, every event is in the table once."""
    proof = exactly_once(lake)
    (row,) = query.run(
        "select count(*) as n, count(distinct event_id) as ids from events where topic_id <> 'elsewhere'", lake
    )
    if not all(check["ok"] for check in proof) or row["ids"] != events or (row["n"] != events and not plain):
        sys.exit(f"not exactly once, so no figure: {row}, {proof}")


def machine() -> dict[str, Any]:
    """The machine and versions that the figures depend on."""
    info = Path("/proc/cpuinfo")
    models = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
    return {
        "cpus": os.cpu_count(),
        "cpu": models[0] if models else platform.processor(),
        "memory_gb": psutil.virtual_memory().total / 1e9,
        "python": platform.python_version(),
        "pyspark": pyspark.__version__,
        "delta": next(jar.version for jar in listed("spark") if jar.artifact.startswith("delta-spark")),
        "load_average": os.getloadavg()[0],
    }


Way = Callable[[SparkSession, KafkaSettings, argparse.Namespace, Path, Meter], None]
"""Lands the topic with the options into a folder, by whatever a benchmark compares."""


def in_turns(
    arguments: argparse.Namespace, ways: Mapping[str, Way], unrepeated: Collection[str] = ()
) -> tuple[int, dict[str, list[float]]]:
    """Runs all ways in turns, those in `unrepeated` on a topic without resends; returns the median size of the values and, by
    way, the CPU-s per million of each round.
    """
    taken: dict[str, list[float]] = {name: [] for name in ways}
    with stage() as (broker, folder):
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap)
        size = asyncio.run(fill(kafka, arguments.events))
        other = kafka.model_copy(update={"events_topic": "headrace.unrepeated"})
        if unrepeated:
            asyncio.run(fill(other, arguments.events, resent=0))
        spark = session(LakeSettings(jars=jars("spark"), driver_memory="2g"), LogSettings())
        meter = Meter(broker.pid)
        for number in range(arguments.warm + arguments.rounds):
            for place, (name, way) in enumerate(ways.items()):
                here = folder / f"{number}-{place}"
                meter.start()
                way(spark, other if name in unrepeated else kafka, arguments, here, meter)
                figure = meter.per_million(arguments.batch)
                shutil.rmtree(here)
                print(f"round {number}, {name}: {figure:.2f}", flush=True)
                if number >= arguments.warm:
                    taken[name].append(figure)
        spark.stop()
    return size, taken


@contextmanager
def stage() -> Iterator[tuple[EmbeddedKafka, Path]]:
    """A broker and a folder, both removed afterwards. Sets JAVA_HOME."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="headrace-landing-") as name:
        broker = EmbeddedKafka(Path(name) / "kafka")
        broker.start()
        try:
            yield broker, Path(name)
        finally:
            broker.stop()


def write(name: str, text: str) -> None:
    """Prints `text`, and writes it as ``results/<name>.md``."""
    (RESULTS / f"{name}.md").write_text(text)
    print(text)
