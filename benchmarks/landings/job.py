"""The cost of landing: CPU per event of the unmodified job, compared with a sink that discards the same decoded rows.

Reads a topic several times in one JVM: into Spark's no-op sink, and with the landing job (same source, decoding and batches),
without deduplication and with each of the two indexes. Records have eight headers, one in a hundred is a resend.
"""

from __future__ import annotations

import argparse
import statistics
from datetime import UTC, datetime
from operator import truediv
from pathlib import Path
from typing import Any

from headrace_common.operations.settings import KafkaSettings
from headrace_common.record.contract import HEADERS
from headrace_lake.rows import decode
from pyspark.sql import DataFrame, SparkSession

from .stage import PARTITIONS, RESENT, Meter, Way, in_batches, in_turns, land, machine, prove, write

EVENTS, ROUNDS, WARM = 2_000_000, 3, 3
WAYS: dict[str, dict[str, Any]] = {"plain": {"horizon": 0}, "map": {}, "arrays": {"dedup": "arrays"}}
"""Name of the measurement -> settings of the lake."""

UNREPEATED = {f"{name}, unrepeated": settings for name, settings in WAYS.items()}
"""The same without a resend."""


def throw_away(
    spark: SparkSession, kafka: KafkaSettings, arguments: argparse.Namespace, here: Path, meter: Meter
) -> None:
    """Reads the topic into Spark's no-op sink."""
    topics = decode.Topics(kafka.events_topic, kafka.quarantine_topic, {kafka.events_topic: "x"})

    def act(records: DataFrame) -> None:
        rows = decode.events(decode.decoded(records), topics, datetime.now(UTC))
        rows.where(f"{decode.FAULT} is null").drop(decode.FAULT).write.format("noop").mode("append").save()

    in_batches(spark, kafka, arguments.batch, here / "noop", meter, act)


def run(arguments: argparse.Namespace) -> None:
    """Runs all rounds and writes the results."""
    held: dict[str, Any] = {}

    def landed(name: str, settings: dict[str, Any]) -> Way:
        def way(
            spark: SparkSession, kafka: KafkaSettings, arguments: argparse.Namespace, here: Path, meter: Meter
        ) -> None:
            last = land(spark, kafka, arguments.batch, here, meter, settings)
            prove(here / "lake", arguments.events, plain="horizon" in settings)
            if last is not None and last.dedup_status is not None:
                held[name.split(",")[0]] = last.dedup_status.state._asdict()

        return way

    ways = {name: landed(name, settings) for name, settings in {**WAYS, **UNREPEATED}.items()}
    size, taken = in_turns(arguments, {"noop": throw_away, **ways}, UNREPEATED)
    write_results(
        {
            "machine": machine(),
            "events": arguments.events,
            "value_bytes": size,
            "headers": len(HEADERS),
            "partitions": PARTITIONS,
            "batch_records": arguments.batch,
            "resent": 1 / RESENT,
            "cpu_seconds_per_million": {name: statistics.median(figures) for name, figures in taken.items()},
            "ratios": {
                f"{above}/{below}": statistics.median(map(truediv, taken[above], taken[below]))
                for above, below in (
                    ("plain", "noop"),
                    *((name, "plain") for name in ("map", "arrays")),
                    *((f"{name}, unrepeated", "plain, unrepeated") for name in ("map", "arrays")),
                )
            },
            "remembered": held,
            "rounds": [dict(zip(taken, figures, strict=True)) for figures in zip(*taken.values(), strict=True)],
        }
    )


def write_results(result: dict[str, Any]) -> None:
    """The results as JSON and as a table; the table is also printed."""
    figures = result["cpu_seconds_per_million"]
    ratios = result["ratios"]
    rows = [
        ("CPU-s per million records, decoded and thrown away (no-op sink)", f"{figures['noop']:.1f}"),
        ("… landed in Delta, without de-duplication", f"{figures['plain']:.1f}"),
        ("… landed, ids remembered in the JVM (`map`)", f"{figures['map']:.1f}"),
        ("… landed, ids remembered in the driver (`arrays`)", f"{figures['arrays']:.1f}"),
        ("landed without de-duplication / thrown away", f"{ratios['plain/noop']:.2f}"),
        ("`map` / without", f"{ratios['map/plain']:.2f}"),
        ("`arrays` / without", f"{ratios['arrays/plain']:.2f}"),
        *(
            (f"`{name}` / without, if no batch has a resend", f"{ratios[f'{name}, unrepeated/plain, unrepeated']:.2f}")
            for name in ("map", "arrays")
        ),
        *(
            (f"bytes of memory for each id, `{name}`", f"{state['bytes'] / state['ids']:.0f}")
            for name, state in result["remembered"].items()
            if state["ids"]
        ),
    ]
    table = "\n".join(["| what | figure |", "|---|---|", *(f"| {name} | {figure} |" for name, figure in rows)])
    head = (
        f"Landing, batches of {result['batch_records']:,} events on {result['partitions']} partitions, {result['headers']} "
        f"headers, values of {result['value_bytes']} bytes, warm JVM, one record in "
        f"{round(1 / result['resent'])} a resend; medians of {len(result['rounds'])} rounds; PySpark "
        f"{result['machine']['pyspark']}, Delta {result['machine']['delta']}, {result['machine']['cpus']} CPUs "
        f"({result['machine']['cpu']}). Written by `python -m benchmarks.landing`.\n\n"
    )
    write("landing", head + table + "\n")
