"""Where the CPU of landing goes: the same batches through more and more of the job's own steps, until it is the job.

Each way does what the one before it does, and one thing more, up to the landing job without de-duplication (`plain` of
`job`). So a stage costs what its way takes beyond the one before, and the stages add up to the job.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

from headrace_common.operations.settings import KafkaSettings
from headrace_lake.dedup.index import DUPLICATE
from headrace_lake.kafka.checkpoint import Range
from headrace_lake.landing.digests import Slots
from headrace_lake.landing.landing_events import _counted_by, _measures
from headrace_lake.rows import decode
from headrace_lake.spark.storage import Storage
from headrace_lake.tables import layout
from headrace_lake.tables.append import Appender
from headrace_lake.tables.digest import OF_EVENTS
from headrace_lake.tables.layout import DAY, SCHEMAS
from headrace_lake.tables.layout import EVENTS as TABLE
from headrace_lake.tables.properties import APP_ID
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from .stage import PARTITIONS, Meter, Way, in_batches, in_turns, machine, options, ours, write

EVENTS, ROUNDS, WARM = 570_000, 5, 2

Act = Callable[[DataFrame, decode.Topics, Path], None]
COLUMNS: Final = SCHEMAS[TABLE].names


def nowhere(rows: DataFrame) -> None:
    """Computes all of `rows`, and throws them away."""
    rows.write.format("noop").mode("append").save()


def decoded(records: DataFrame, topics: decode.Topics) -> DataFrame:
    """As the job decodes."""
    return decode.events(records, topics, datetime.now(UTC))


def hashed(records: DataFrame, topics: decode.Topics, *, counted: bool) -> DataFrame:
    """As the job writes them, with what it observes."""
    ranges = [Range(topics.events, number, 0, 1) for number in range(PARTITIONS)]
    slots = Slots(ranges, topics)
    wanted = f"{decode.FAULT} is null and not {DUPLICATE}"
    rows = decoded(records, topics).withColumn(DUPLICATE, sf.lit(False))
    rows = slots.hashed_with(rows, OF_EVENTS, wanted, *(_counted_by(ranges) if counted else []))
    measures = _measures(erased=False) if counted else []
    return rows.observe(Observation(), *measures, *slots.sums()).where(wanted).select(*COLUMNS)


def unchecked(records: DataFrame, topics: decode.Topics, _: Path) -> None:
    nowhere(decoded(records, topics).select(*COLUMNS))


def checked(records: DataFrame, topics: decode.Topics, _: Path) -> None:
    nowhere(decoded(records, topics).where(f"{decode.FAULT} is null").select(*COLUMNS))


def parquet(records: DataFrame, topics: decode.Topics, folder: Path) -> None:
    rows = hashed(records, topics, counted=True)
    rows.write.mode("append").partitionBy(DAY).parquet(str(folder / "parquet"))


def delta(records: DataFrame, topics: decode.Topics, folder: Path) -> None:
    spark, lake = records.sparkSession, str(folder / "lake")
    version = 1 + (len(list((folder / "lake" / TABLE / "_delta_log").glob("*.json"))) or create(spark, lake))
    rows = hashed(records, topics, counted=True)
    Appender(spark, APP_ID).append(f"{lake}/{TABLE}", rows, version, "benchmark", lambda: version - 1)


def create(spark: SparkSession, lake: str) -> int:
    """Makes the tables, as the job does."""
    layout.create(Storage(spark), lake)
    return 1


STAGES: Final[dict[str, Act]] = {
    "read from Kafka and decompressed, as Spark's rows": lambda records, *_: nowhere(records.drop("headers")),
    "headers, as arrays of Spark's": lambda records, *_: nowhere(records),
    "headers to columns, texts, times": unchecked,
    "checks: headers' rules, UTF-8": checked,
    "hashes and their sums": lambda records, topics, _: nowhere(hashed(records, topics, counted=False)),
    "counts by partition, age and time": lambda records, topics, _: nowhere(hashed(records, topics, counted=True)),
    "Parquet, zstd": parquet,
    "Delta: statistics, commit": delta,
}
"""The stage that each way adds to the one before it -> what it does with a batch."""
JOB: Final = "the rest of the job: its logs, `batches`, offsets"


def staged(act: Act) -> Way:
    """The way that does `act` with each batch."""

    def way(spark: SparkSession, kafka: KafkaSettings, arguments: argparse.Namespace, here: Path, meter: Meter) -> None:
        names = (kafka.events_topic, kafka.quarantine_topic)
        topics = decode.Topics(*names, dict.fromkeys(names, "x"))
        in_batches(spark, kafka, arguments.batch, here / "checkpoint", meter, lambda rows: act(rows, topics, here))

    return way


def run(arguments: argparse.Namespace) -> None:
    """Runs all rounds and writes the results."""
    ways = {name: staged(act) for name, act in STAGES.items()}
    _, taken = in_turns(arguments, {**ways, JOB: ours("off")})
    median = {name: statistics.median(figures) for name, figures in taken.items()}
    info = machine()
    result = {"machine": info, **options(arguments), "cpu_seconds_per_million": median, "rounds": taken}
    whole = median[JOB]
    text = (
        f"Where the CPU of landing goes: CPU-s per million records, batches of {arguments.batch:,} on {PARTITIONS} partitions,"
        f" without de-duplication. Each line is what its stage adds to those above it; medians of {arguments.rounds} rounds;"
        f" PySpark {info['pyspark']}, {info['cpus']} CPUs ({info['cpu']}), load average {info['load_average']:.0f}: other work on"
        " the machine moves a figure by a CPU-second, so that a small stage may seem to cost nothing, or less. Written by"
        " `python -m benchmarks.landing stages`.\n\n"
        "| stage | CPU-s per million | of the whole | up to here |\n|---|---|---|---|\n"
    )
    for (_, before), (name, after) in pairwise([("", 0.0), *median.items()]):
        text += f"| {name} | {after - before:.1f} | {(after - before) / whole:.0%} | {after:.1f} |\n"
    write("landing-stages", result, text)
