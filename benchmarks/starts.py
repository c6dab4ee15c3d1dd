"""Counts the CPU of a start with ``--once``, beside a query of Spark's that only reads the same records.

    .venv/bin/python -m benchmarks.starts [--rounds 3]

The query runs in a session with the job's own options, and knows no table. CPU is that of driver and JVM, when the first batch
begins and when it is over. Writes ``benchmarks/results/starts.md``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from typing import Final

from headrace_common.operations.settings import LogSettings, load
from headrace_lake.configuration.settings import LakeProcessSettings
from headrace_lake.spark.engine import running
from pyspark.sql import DataFrame

from benchmarks.landing import PARTITIONS, fill
from benchmarks.stage import say, stage, used, write

EVENTS: Final = 2_000
QUERY: Final = "a query that reads the topic, and nothing else"
NEW: Final = "the job, on new tables"
AGAIN: Final = "the job, on tables of an earlier one"
BEGINS: Final = "batch begins"
OVER: Final = "landed"


def read() -> None:
    """Reads what the events topic holds. Says the same lines as the job."""
    settings = load(LakeProcessSettings)
    kafka = {"kafka.bootstrap.servers": settings.kafka.bootstrap_servers, "subscribe": settings.kafka.events_topic}

    def each(records: DataFrame, _: int) -> None:
        print(json.dumps({"event": BEGINS}), flush=True)
        records.write.format("noop").mode("append").save()
        print(json.dumps({"event": OVER}), flush=True)

    with running(settings.lake, LogSettings(), once=True) as spark, tempfile.TemporaryDirectory() as checkpoint:
        records = spark.readStream.format("kafka").options(**kafka, startingOffsets="earliest").load()
        query = records.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    """Takes all rounds and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dry", action="store_true", help="a trial: write no results")
    given = parser.parse_args()
    taken: dict[str, list[list[float]]] = {QUERY: [], NEW: [], AGAIN: []}
    for _ in range(given.rounds):
        with stage(PARTITIONS) as here:
            for what in taken:
                asyncio.run(fill(here.kafka, EVENTS, 0))
                query = [sys.executable, "-c", "from benchmarks.starts import read; read()"]
                job = here.start(launcher=query) if what == QUERY else here.start(once=True)
                figures = []
                for event in (BEGINS, OVER):
                    job.next(event)
                    figures.append(used(job)[1])
                if job.wait():
                    sys.exit(f"it failed, so no figure: {job.tail()}")
                taken[what].append(figures)
                say(f"{what}: {figures[0]:.1f}, {figures[1]:.1f}")
    rows: list[tuple[str, object]] = [
        (f"CPU-s of {what}, until its first batch {how}", f"{statistics.median(each[at] for each in figures):.1f}")
        for what, figures in taken.items()
        for at, how in enumerate(("begins", "is over"))
    ]
    title = f"A start with --once, {EVENTS:,} records to land; medians of {given.rounds} rounds."
    write("starts", title, rows, by="benchmarks.starts", dry=given.dry)


if __name__ == "__main__":
    main()
