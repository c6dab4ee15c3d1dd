"""The cost of landing: CPU per event of the unmodified job beside a sink that discards the same decoded rows.

    .venv/bin/python -m benchmarks.landing [--events N] [--batch 190000] [--resent 0]

Fills a topic and reads it several times in one JVM: into Spark's no-op sink, and with the landing job (same source, decoding
and batches), without deduplication and with each of the two indexes; the first rounds warm it up and do not count. CPU is that
of the process tree without the broker, from the end of one batch to the end of the next. After each run of the job the
exactly-once proof must hold and the rows must be right; otherwise there is no figure. Writes ``benchmarks/results/landing.md``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import string
import sys
import time
from datetime import UTC, datetime
from operator import truediv
from pathlib import Path
from typing import Any, Final

import psutil
from headrace_cli.machine.jars import jars
from headrace_cli.machine.java import java_home
from headrace_cli.verbs import query
from headrace_common.operations import log as logs
from headrace_common.operations.settings import KafkaSettings, LogSettings
from headrace_lake.configuration.settings import LakeProcessSettings, LakeSettings
from headrace_lake.job import Job
from headrace_lake.kafka.source import source_options
from headrace_lake.landing.landing import BatchResult
from headrace_lake.rows import decode
from headrace_lake.spark.engine import session
from headrace_lake.upkeep.metrics import LakeMetrics
from headrace_lake.upkeep.operations import LakeHealth
from headrace_reader.proof import exactly_once
from pyspark.sql import DataFrame, SparkSession

from benchmarks.records import Sent, headers, producing, send
from benchmarks.stage import stage, write

EVENTS, ROUNDS, WARM = 2_000_000, 3, 3
NOOP: Final = "noop"
WAYS: dict[str, dict[str, Any]] = {"plain": {"horizon": 0}, "map": {}, "arrays": {"dedup": "arrays"}}
"""Name of the measurement -> settings of the lake."""
PARTITIONS: Final = 4
PER_FRAME: Final = 500
BACK: Final = 1500
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


async def fill(kafka: KafkaSettings, events: int, resent: int) -> int:
    """Sends `events` different events, and in each frame `resent` earlier ones again. Returns the median size of the values."""
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
    now = int(time.time() * 1000)

    def sent(frame: int, index: int) -> Sent:
        number = frame * PER_FRAME + index
        about = headers(b"d.%024x%08x" % (frame * 7919, index), frame, index, now + number)
        return Sent(now, values[number % len(values)], about)

    async with producing(kafka) as producer:
        for number in range(-(-events // PER_FRAME)):
            frame = [(number, index) for index in range(min(PER_FRAME, events - number * PER_FRAME))]
            if number:
                earlier = rng.randrange(max(0, number - BACK), number)
                frame += [(earlier, rng.randrange(PER_FRAME)) for _ in range(resent)]
            await send(producer, kafka.events_topic, number % PARTITIONS, (sent(*each) for each in frame))
    return round(statistics.median(map(len, values)))


def throw_away(spark: SparkSession, kafka: KafkaSettings, size: int, checkpoint: Path, meter: Meter) -> None:
    """Reads the topic in batches of `size` records into Spark's no-op sink."""
    names = (kafka.events_topic, kafka.quarantine_topic)
    starting = {
        name: dict.fromkeys(map(str, range(count)), -2) for name, count in zip(names, (PARTITIONS, 3), strict=True)
    }
    topics = decode.Topics(*names, {kafka.events_topic: "x"})

    def each(records: DataFrame, _: int) -> None:
        rows = decode.events(decode.decoded(records), topics, datetime.now(UTC))
        rows.where(f"{decode.FAULT} is null").drop(decode.FAULT).write.format("noop").mode("append").save()
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
    spark: SparkSession, kafka: KafkaSettings, size: int, folder: Path, meter: Meter, settings: dict[str, Any]
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
    (row,) = query.run("select count(*) as n, count(distinct event_id) as ids from events", lake)
    if not all(check["ok"] for check in proof) or row["ids"] != events or (row["n"] != events and not plain):
        sys.exit(f"not exactly once, so no figure: {row}, {proof}")


def main() -> None:
    """Takes all rounds and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--batch", type=int, default=190_000, help="records in a batch")
    parser.add_argument("--resent", type=int, default=5, help=f"resends beside each {PER_FRAME} events")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--warm", type=int, default=WARM, help="rounds that do not count")
    parser.add_argument("--dry", action="store_true", help="a trial: write no results")
    given = parser.parse_args()
    taken: dict[str, list[float]] = {name: [] for name in (NOOP, *WAYS)}
    remembered: dict[str, float] = {}
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with stage(PARTITIONS) as here:
        size = asyncio.run(fill(here.kafka, given.events, given.resent))
        spark = session(LakeSettings(jars=jars("spark"), driver_memory="2g"), LogSettings())
        meter = Meter(here.broker.pid)
        for number in range(given.warm + given.rounds):
            for name in taken:
                folder = here.folder / f"{number}-{name}"
                meter.start()
                if name == NOOP:
                    throw_away(spark, here.kafka, given.batch, folder, meter)
                else:
                    last = land(spark, here.kafka, given.batch, folder, meter, WAYS[name])
                    prove(folder / "lake", given.events, plain=name == "plain")
                    if last is not None and last.landed.index is not None and last.landed.index.ids:
                        remembered[name] = last.landed.index.bytes / last.landed.index.ids
                shutil.rmtree(folder)
                figure = meter.per_million(given.batch)
                print(f"round {number}, {name}: {figure:.2f}", flush=True)
                if number >= given.warm:
                    taken[name].append(figure)
        spark.stop()

    def ratio(above: str, below: str) -> str:
        return f"{statistics.median(map(truediv, taken[above], taken[below])):.2f}"

    cost = {name: f"{statistics.median(figures):.1f}" for name, figures in taken.items()}
    title = (
        f"Landing, batches of {given.batch:,} events on {PARTITIONS} partitions, 8 headers, values of {size} bytes, warm JVM,"
        f" {given.resent} resends beside each {PER_FRAME} events; medians of {given.rounds} rounds."
    )
    rows: list[tuple[str, object]] = [
        ("CPU-s per million records, decoded and thrown away (no-op sink)", cost[NOOP]),
        ("… landed in Delta, without de-duplication", cost["plain"]),
        ("… landed, ids remembered in the JVM (`map`)", cost["map"]),
        ("… landed, ids remembered in the driver (`arrays`)", cost["arrays"]),
        ("landed without de-duplication / thrown away", ratio("plain", NOOP)),
        ("`map` / without", ratio("map", "plain")),
        ("`arrays` / without", ratio("arrays", "plain")),
        *((f"bytes of memory for each id, `{name}`", f"{each:.0f}") for name, each in remembered.items()),
    ]
    write("landing" if given.resent else "landing-without-resends", title, rows, by="benchmarks.landing", dry=given.dry)


if __name__ == "__main__":
    main()
