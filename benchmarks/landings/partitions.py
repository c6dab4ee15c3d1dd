"""The cost of landing by the number of partitions: CPU per event of large batches, and CPU of a small batch.

Fills two topics for each number of partitions with the same events, and lands them with the unmodified job in one JVM: one in
large batches, one in batches of 10,000. Each round goes through all numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
from typing import Any

from headrace_cli.machine.jars import jars
from headrace_common.operations.settings import KafkaSettings, LogSettings
from headrace_lake.configuration.settings import LakeSettings
from headrace_lake.spark.engine import session

from .stage import Meter, fill, land, machine, prove, stage, write

EVENTS, ROUNDS, WARM = 950_000, 3, 1

SMALL = 10_000
"""Records in a small batch."""

SMALL_EVENTS = 200_000
"""Events that are landed in small batches."""


def run(arguments: argparse.Namespace) -> None:
    """Runs all rounds and writes the results."""
    with stage() as (broker, folder):
        sizes = {"large": (arguments.events, arguments.batch), "small": (SMALL_EVENTS, SMALL)}
        topics = {
            (count, name): KafkaSettings(bootstrap_servers=broker.bootstrap, events_topic=f"headrace.{name}.{count}")
            for count in arguments.partitions
            for name in sizes
        }
        for (count, name), kafka in topics.items():
            asyncio.run(fill(kafka, sizes[name][0], count))
        # Several jobs in one JVM: Spark keeps the consumers of a query that has ended, and what they read ahead, for minutes.
        spark = session(LakeSettings(jars=jars("spark"), driver_memory="4g"), LogSettings())
        meter = Meter(broker.pid)
        rounds: list[dict[str, dict[str, float]]] = []
        for number in range(arguments.warm + arguments.rounds):
            figures: dict[str, dict[str, float]] = {"large": {}, "small": {}}
            for (count, name), kafka in topics.items():
                events, size = sizes[name]
                here = folder / f"round-{number}-{count}-{name}"
                meter.start()
                land(spark, kafka, size, here, meter, "auto")
                figures[name][str(count)] = meter.per_million(size)
                prove(here / "lake", events, plain=False)
                shutil.rmtree(here)
            print(f"round {number}:", figures, flush=True)
            if number >= arguments.warm:
                rounds.append(figures)
        spark.stop()
    _write(arguments, rounds)


def _write(arguments: argparse.Namespace, rounds: list[dict[str, dict[str, float]]]) -> None:
    counts = [str(count) for count in arguments.partitions]

    def of(name: str, count: str, factor: float = 1.0) -> float:
        return statistics.median(entry[name][count] for entry in rounds) * factor

    def ratio(name: str, count: str) -> float:
        return statistics.median(entry[name][count] / entry[name][counts[0]] for entry in rounds)

    result: dict[str, Any] = {
        "machine": machine(),
        "events": arguments.events,
        "batch_records": arguments.batch,
        "small_batch_records": SMALL,
        "partitions": arguments.partitions,
        "cpu_seconds_per_million": {count: of("large", count) for count in counts},
        "cpu_seconds_per_small_batch": {count: of("small", count, SMALL / 1e6) for count in counts},
        "ratios": {name: {count: ratio(name, count) for count in counts} for name in ("large", "small")},
        "rounds": rounds,
    }
    head = (
        f"Landing by the number of partitions: CPU-s per million records in batches of {arguments.batch:,}, and CPU-s of a batch "
        f"of {SMALL:,}; medians of {len(rounds)} rounds; PySpark {result['machine']['pyspark']}, "
        f"{result['machine']['cpus']} CPUs ({result['machine']['cpu']}), load average {result['machine']['load_average']:.0f}. "
        "Written by `python -m benchmarks.landing partitions`.\n\n"
    )
    rows = [
        f"| {count} | {of('large', count):.1f} | {ratio('large', count):.2f} | {of('small', count, SMALL / 1e6):.2f} | "
        f"{ratio('small', count):.2f} |"
        for count in counts
    ]
    titles = (
        f"| partitions | CPU-s per million | ratio to {counts[0]} | CPU-s of a small batch | ratio to {counts[0]} |"
    )
    table = "\n".join([titles, "|---|---|---|---|---|", *rows])
    write("landing-partitions", result, head + table + "\n")
