"""Measures what exactly once and the proof cost: the landing job beside jobs that a Spark user writes in an afternoon, in turns.

The naive jobs read the same topic, put the headers into columns and append to one Delta table. One of them does no more: what a
client sends again, and what a crash repeats, lands twice. One drops resends by Spark's own state
(`dropDuplicatesWithinWatermark`), one by `MERGE` on the event's id, both within an hour. None keeps ranges, quarantine or
counts, so none can be proven.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headrace_common.operations.settings import KafkaSettings
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from .stage import PARTITIONS, Meter, Way, in_batches, in_turns, machine, options, ours, write

EVENTS, ROUNDS, WARM = 570_000, 3, 2

Write = Callable[[DataFrame, str], None]
HORIZON: Final = "1 hour"


def parsed(records: DataFrame) -> DataFrame:
    """The columns that a user takes from the records."""
    frame = records.where("topic = 'headrace.events'").withColumn("h", sf.map_from_entries("headers"))
    return frame.selectExpr(
        "string(h['ce_id']) as event_id", "string(h['ce_source']) as source", "string(h['ce_subject']) as stream",
        "try_cast(string(h['ce_time']) as timestamp) as event_time", "timestamp as received_time",
        "string(h['content-type']) as content_type", "string(value) as body", "string(h['ce_attributes']) as attributes",
        "partition", "offset", "current_date() as day",
    )  # fmt: skip


def append(rows: DataFrame, table: str) -> None:
    """Adds all rows."""
    rows.write.format("delta").mode("append").partitionBy("day").save(table)


def merge(rows: DataFrame, table: str) -> None:
    """Adds the rows whose ids the last hour lacks; within the batch, one of each id."""
    spark = rows.sparkSession
    if not Path(table, "_delta_log").exists():
        append(rows.limit(0), table)
    rows.dropDuplicates(["event_id"]).createOrReplaceTempView("naive_batch")
    spark.sql(
        f"MERGE INTO delta.`{table}` t USING naive_batch s ON t.event_id = s.event_id"
        f" AND t.received_time >= s.received_time - INTERVAL {HORIZON} AND t.day >= current_date() - 1"
        " WHEN NOT MATCHED THEN INSERT *"
    )


def once_an_hour(rows: DataFrame) -> DataFrame:
    """Drops resends by Spark's state."""
    return rows.withWatermark("received_time", HORIZON).dropDuplicatesWithinWatermark(["event_id"])


def naive(write: Write, shape: Callable[[DataFrame], DataFrame] = parsed) -> Way:
    """A naive way."""

    def way(spark: SparkSession, kafka: KafkaSettings, arguments: argparse.Namespace, here: Path, meter: Meter) -> None:
        table = str(here / "table")
        in_batches(spark, kafka, arguments.batch, here / "checkpoint", meter, lambda rows: write(rows, table), shape)

    return way


WAYS: Final[dict[str, Way]] = {
    "append": naive(append),
    "dropDuplicatesWithinWatermark": naive(append, lambda records: once_an_hour(parsed(records))),
    "MERGE": naive(merge),
    "plain": ours("off"),
    "map": ours("map"),
}


def run(arguments: argparse.Namespace) -> None:
    """Runs all rounds and writes the results."""
    _, taken = in_turns(arguments, WAYS)
    median = {name: statistics.median(figures) for name, figures in taken.items()}
    info = machine()
    result = {"machine": info, **options(arguments), "cpu_seconds_per_million": median, "rounds": taken}
    what = {
        "append": "naive: headers to columns, append; resends and repeats land twice",
        "dropDuplicatesWithinWatermark": "naive, resends dropped by `dropDuplicatesWithinWatermark`",
        "MERGE": "naive, resends dropped by `MERGE`",
        "plain": "the landing job, without de-duplication",
        "map": "the landing job, ids remembered in the JVM (`map`)",
    }
    text = (
        f"The landing job beside naive ones: CPU-s per million records, batches of {arguments.batch:,} on {PARTITIONS}"
        f" partitions, medians of {arguments.rounds} rounds; PySpark {info['pyspark']}, {info['cpus']} CPUs ({info['cpu']}),"
        f" load average {info['load_average']:.0f}. Written by `python -m benchmarks.landing naive`.\n\n"
        "| what | CPU-s per million | ÷ append |\n|---|---|---|\n"
    )
    text += "".join(
        f"| {said} | {median[name]:.1f} | {median[name] / median['append']:.2f} |\n" for name, said in what.items()
    )
    write("landing-naive", result, text)
