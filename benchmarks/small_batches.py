"""Whether many small batches slow the job down: 200 of them on one lake, with maintenance in between.

Starts an embedded Kafka and fills a topic; one run of the job on other tables warms the JVM, then a fresh lake gets its
batches. A batch's time is from the end of the one before to its own end, less what maintenance took in between. Afterwards
the exactly-once proof must hold, else there is no figure. Writes ``benchmarks/results/small-batches.json`` and ``.md``.

    .venv/bin/python benchmarks/small_batches.py [--batches 200] [--records 2000] [--warm 60]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from headrace_cli.broker import EmbeddedKafka
from headrace_cli.toolchain import jars, java_home
from headrace_common import log as logs
from headrace_common.metrics import LakeMetrics
from headrace_common.settings import KafkaSettings, LogSettings
from headrace_lake.engine import session
from headrace_lake.job import Job
from headrace_lake.landing import Landed
from headrace_lake.operations import LakeHealth
from headrace_lake.settings import LakeProcessSettings, LakeSettings
from landing import PARTITIONS, RESULTS, fill, machine, prove
from pyspark.sql import SparkSession

COMPARED = 20
TASKS = ("compact", "clean_log", "retain", "vacuum")


class Clock(LakeHealth):
    """Times batches without the maintenance between them."""

    def __init__(self) -> None:
        super().__init__(LakeMetrics())
        self._last = (time.monotonic(), 0.0)
        self.seconds: list[float] = []
        self.files: list[int] = []

    def landed(self, result: Landed) -> None:
        super().landed(result)
        now = (time.monotonic(), self.maintenance())
        self.seconds.append(now[0] - self._last[0] - (now[1] - self._last[1]))
        self._last = now
        self.files.append(int(self._value("files", table="events")))

    def maintenance(self) -> float:
        """Seconds spent on it so far."""
        return sum(self._value("maintenance_seconds_total", task=task) for task in TASKS)

    def pieces(self) -> int:
        """How many there were."""
        return int(sum(self._value("maintenance_runs_total", task=task) for task in TASKS))

    def _value(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"headrace_lake_{name}", labels) or 0.0


def run(spark: SparkSession, kafka: KafkaSettings, folder: Path, records: int, **settings: Any) -> Clock:
    """Lands all of the topic in batches of `records`."""
    lake = LakeSettings(
        path=str(folder / "lake"), checkpoint=str(folder / "checkpoint"), batch_records=records, **settings
    )
    clock = Clock()
    log = logs.configure(LogSettings(level="warning"), "small-batches")
    Job(spark, LakeProcessSettings(kafka=kafka, lake=lake), once=True, log=log, health=clock).run()
    return clock


def measure(broker: EmbeddedKafka, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """The results."""
    kafka = KafkaSettings(bootstrap_servers=broker.bootstrap)
    warm = kafka.model_copy(update={"events_topic": "warm.events", "quarantine_topic": "warm.quarantine"})
    asyncio.run(fill(warm, arguments.warm * arguments.records))
    events = arguments.batches * arguments.records
    asyncio.run(fill(kafka, events))
    spark = session(LakeSettings(jars=jars("spark")), LogSettings())
    try:
        run(spark, warm, folder / "warm", arguments.records)
        began = time.monotonic()
        clock = run(spark, kafka, folder / "measured", arguments.records)
        took = time.monotonic() - began
    finally:
        spark.stop()
    prove(folder / "measured" / "lake", events)
    log = list((folder / "measured" / "lake" / "events" / "_delta_log").glob("*.json"))
    first, last = (statistics.median(part) for part in (clock.seconds[1 : COMPARED + 1], clock.seconds[-COMPARED:]))
    return {
        "machine": machine(),
        "batches": len(clock.seconds),
        "records": arguments.records,
        "partitions": PARTITIONS,
        "first_twenty_seconds": first,
        "last_twenty_seconds": last,
        "ratio": last / first,
        "files_at_most": max(clock.files),
        "files_written": len(clock.seconds) * PARTITIONS,
        "commits_in_log": len(log),
        "maintenance_seconds": clock.maintenance(),
        "maintenance_pieces": clock.pieces(),
        "seconds": took,
        "each": [round(seconds, 3) for seconds in clock.seconds],
    }


def write(result: dict[str, Any]) -> None:
    """The results as JSON and as a table; the table is also printed."""
    rows = [
        ("a batch, median of the first twenty", f"{result['first_twenty_seconds']:.2f} s"),
        ("a batch, median of the last twenty", f"{result['last_twenty_seconds']:.2f} s"),
        ("ratio", f"{result['ratio']:.2f}"),
        ("data files of `events` written", f"{result['files_written']}"),
        ("… in the table at most", f"{result['files_at_most']}"),
        (
            "maintenance between batches",
            f"{result['maintenance_pieces']} pieces, {result['maintenance_seconds']:.0f} s of {result['seconds']:.0f} s",
        ),
    ]
    table = "\n".join(["| what | figure |", "|---|---|", *(f"| {name} | {figure} |" for name, figure in rows)])
    head = (
        f"{result['batches']} batches of {result['records']:,} events on {result['partitions']} partitions, one after the "
        f"other, JVM warm, settings as they ship; {result['machine']['cpus']} CPUs ({result['machine']['cpu']}). Written by "
        "`benchmarks/small_batches.py`.\n\n"
    )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "small-batches.json").write_text(json.dumps(result, indent=1) + "\n")
    (RESULTS / "small-batches.md").write_text(head + table + "\n")
    print(head + table)


def main() -> None:
    """Runs it and writes the results; the exit status is 1 when the last batches are slower than 1.2 × the first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--records", type=int, default=2000, help="records in a batch")
    parser.add_argument("--warm", type=int, default=60, help="batches that warm the JVM")
    arguments = parser.parse_args()
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="headrace-small-batches-") as name:
        folder = Path(name)
        broker = EmbeddedKafka(folder / "kafka")
        broker.start()
        try:
            result = measure(broker, folder, arguments)
        finally:
            broker.stop()
    write(result)
    sys.exit(result["ratio"] > 1.2)


if __name__ == "__main__":
    main()
