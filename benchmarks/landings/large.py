"""The cost of landing on a large table: CPU per event with 1 and with 20 million remembered ids.

Fills the events table, without Kafka, with rows whose ids are all within the horizon. Then it starts the landing job on it, which
reads the ids back, and lands the same topic as `job`: with both indexes, and on both tables in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace_cli.machine.jars import jars
from headrace_common.operations.settings import KafkaSettings, LogSettings
from headrace_common.record.contract import HEADERS
from headrace_lake.configuration.settings import LakeSettings
from headrace_lake.spark.engine import session
from headrace_lake.spark.storage import Storage
from headrace_lake.tables import layout
from headrace_lake.tables.layout import EVENTS as TABLE
from headrace_lake.tables.layout import SCHEMAS
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from tests.contract.embedded import EmbeddedKafka

from .stage import PARTITIONS, Meter, fill, land, machine, prove, stage, write

EVENTS, ROUNDS, WARM = 1_200_000, 3, 1

WAYS = ("map", "arrays")
MEMORY = 3 << 30
"""LAKE__DEDUP_MEMORY: more than 20 million ids need, so that none is forgotten."""


def fill_table(spark: SparkSession, lake: Path, rows: int) -> None:
    """Writes `rows` events of a deleted topic, received within the last half hour, in files of half a million."""
    layout.create(Storage(spark), str(lake))
    now = datetime.now(UTC)
    given = {
        "event_id": "concat('d.', md5(string(id)))",
        "protocol": "'forward'",
        "body": "concat('{\"log\":\"', sha2(string(id), 256), '\"}')",
        "received_time": f"timestamp_millis({round(now.timestamp() * 1000)}L - 1800000 + id * 1800000 div {rows})",
        "attributes": "'{\"index\":1}'",
        "topic": "'elsewhere'",
        "topic_id": "'elsewhere'",
        "partition": "0",
        "offset": "id",
        "landed_at": f"timestamp'{now:%Y-%m-%d %H:%M:%S}Z'",
        "day": f"date'{now:%Y-%m-%d}'",
    }
    columns = [
        sf.expr(given.get(field.name, "null")).cast(field.dataType).alias(field.name) for field in SCHEMAS[TABLE].fields
    ]
    frame = spark.range(0, rows, 1, max(1, rows // 500_000)).select(*columns)
    frame.write.format("delta").mode("append").save(str(lake / TABLE))


def copy(lake: Path, into: Path) -> None:
    """Links the files into another lake: no file is ever changed in place."""
    shutil.copytree(lake, into, copy_function=os.link)


def run(arguments: argparse.Namespace) -> None:
    """Runs all rounds and writes the results."""
    with stage() as (broker, folder):
        result = measure(broker, folder, arguments)
    write_results(result)


def measure(broker: EmbeddedKafka, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """The results of all rounds."""
    spark = session(LakeSettings(jars=jars("spark"), driver_memory="8g"), LogSettings())
    for rows in arguments.rows:
        fill_table(spark, folder / str(rows), rows)
    kafka = KafkaSettings(bootstrap_servers=broker.bootstrap)
    size = asyncio.run(fill(kafka, arguments.events))
    meter = Meter(broker.pid)
    rounds = []
    held: dict[str, Any] = {}
    for number in range(arguments.warm + arguments.rounds):
        figures: dict[str, float] = {}
        for way in WAYS:
            for rows in arguments.rows:
                here = folder / "round"
                copy(folder / str(rows), here / "lake")
                began = time.monotonic()
                meter.start()
                last = land(spark, kafka, arguments.batch, here, meter, way, MEMORY)
                figures[f"{way} {rows}"] = meter.per_million(arguments.batch)
                assert last is not None
                assert last.dedup_status is not None
                assert last.dedup_status.state.forgotten == 0
                assert last.dedup_status.state.ids >= rows
                held[f"{way} {rows}"] = last.dedup_status.state._asdict()
                prove(here / "lake", arguments.events, plain=False)
                shutil.rmtree(here)
                print(f"round {number}: {way}, {rows:,} rows: {figures[f'{way} {rows}']:.2f} CPU-s per million, "
                      f"{time.monotonic() - began:.0f} s in all", flush=True)  # fmt: skip
        if number >= arguments.warm:
            rounds.append(figures)
    spark.stop()
    few, many = arguments.rows
    return {
        "machine": machine(),
        "events": arguments.events,
        "value_bytes": size,
        "headers": len(HEADERS),
        "partitions": PARTITIONS,
        "batch_records": arguments.batch,
        "rows": arguments.rows,
        "cpu_seconds_per_million": {name: statistics.median(entry[name] for entry in rounds) for name in rounds[0]},
        "ratios": {
            way: statistics.median(entry[f"{way} {many}"] / entry[f"{way} {few}"] for entry in rounds) for way in WAYS
        },
        "remembered": held,
        "rounds": rounds,
    }


def write_results(result: dict[str, Any]) -> None:
    """The results as JSON and as a table; the table is also printed."""
    few, many = result["rows"]
    figures, ratios, held = result["cpu_seconds_per_million"], result["ratios"], result["remembered"]
    lines = [f"| way | {few:,} rows | {many:,} rows | ratio | bytes of memory for each id |", "|---|---|---|---|---|"]
    lines += [
        f"| `{way}` | {figures[f'{way} {few}']:.1f} | {figures[f'{way} {many}']:.1f} | {ratios[way]:.2f} | "
        f"{held[f'{way} {many}']['bytes'] / held[f'{way} {many}']['ids']:.0f} |"
        for way in WAYS
    ]
    head = (
        f"CPU-s per million records landed, on tables whose rows are all remembered; batches of {result['batch_records']:,} "
        f"records on {result['partitions']} partitions, one in a hundred a resend; medians of {len(result['rounds'])} rounds; "
        f"PySpark {result['machine']['pyspark']}, {result['machine']['cpus']} CPUs ({result['machine']['cpu']}). Written by "
        "`python -m benchmarks.landing large`.\n\n"
    )
    write("landing-large", result, head + "\n".join(lines) + "\n")
