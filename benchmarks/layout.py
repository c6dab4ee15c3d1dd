"""Measures what a reader of one stream reads: the bytes, with three engines, on the same rows merged in two ways.

Makes an events table of many streams, in files as landing writes them, and merges it with the job's own compaction: as they came
(OPTIMIZE, as older versions did), sorted by Spark (as with nested columns) and sorted by Arrow. On each table every engine
selects all columns of one stream, and the bytes that it read are counted, by what the kernel says of its process: DuckDB
(through `headrace query`'s view), deltalake and Spark. Footers and the log are included. It also compares the CPU of the three
ways to merge, and with ``--landing`` the cost of landing with and without statistics of `stream` and `source`. Writes
 ``benchmarks/results/layout.json`` and ``.md``.

    .venv/bin/python -m benchmarks.layout [--rows 2000000] [--streams 200] [--landing 760000]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from deltalake import DeltaTable
from headrace_cli.machine.jars import jars
from headrace_cli.machine.java import java_home
from headrace_common.operations.settings import KafkaSettings, LogSettings
from headrace_lake.configuration.settings import LakeSettings
from headrace_lake.spark.engine import session
from headrace_lake.spark.jvm import java_class
from headrace_lake.spark.storage import Storage
from headrace_lake.tables import layout
from headrace_lake.tables.layout import EVENTS, SCHEMAS
from headrace_lake.upkeep.inventory import Inventory
from headrace_lake.upkeep.merging import choice, compaction, rewrite
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from benchmarks.landings.stage import RESULTS, Meter, fill, land, machine, prove, stage

A_DAY = 5_000_000
"""Rows of a day."""
A_FILE = 95_000
"""Rows of a file, as a batch of 190,000 on two cores has them."""
FILE_BYTES = 128 << 20
WAYS = ("as they came", "sorted by Spark", "sorted by Arrow")
ENGINES = ("DuckDB", "deltalake", "Spark")

READ = {
    "DuckDB": "from headrace_reader.tables import connect, rows\n"
    "found = len(rows(connect(lake), f\"select * from events where stream = '{stream}'\"))",
    "deltalake": "from deltalake import DeltaTable\nimport pyarrow.dataset as ds\n"
    "dataset = DeltaTable(f'{lake}/events').to_pyarrow_dataset()\n"
    "found = dataset.to_table(filter=ds.field('stream') == stream).num_rows",
}
"""Engine -> what its process runs; the imports come before the count begins."""


def fill_table(spark: SparkSession, lake: Path, rows: int, streams: int) -> None:
    """Writes `rows` events: each stream has as many as the next, and each file some of every stream."""
    layout.create(Storage(spark), str(lake))
    words = [f"{number * 7919 % 4093:x}word" for number in range(500)]
    log = " || ' ' || ".join(f"get(words, pmod(hash(id, {number}), 500))" for number in range(12))
    start = round(datetime(2026, 5, 1, tzinfo=UTC).timestamp() * 1000)
    at = f"timestamp_millis({start}L + id * 86400000 div {A_DAY})"
    given = {
        "event_id": "concat('d.', md5(string(id)))",
        "protocol": "'forward'",
        "source": "concat('/forward/host-', pmod(hash(id div 500), 97), '.example.org')",
        "stream": f"concat('app.service-', lpad(string(pmod(hash(id div 20, 7), {streams})), 4, '0'))",
        "event_time": at,
        "event_time_text": f"concat(date_format({at}, \"yyyy-MM-dd'T'HH:mm:ss.SSS\"), '123456Z')",
        "received_time": at,
        "content_type": "'application/json'",
        "body": f'concat(\'{{"log":"\', {log}, \'","status":\', 200 + id % 7, \',"pod":"\','
        " substring(md5(string(id)), 1, 6), '\"}')",
        "attributes": "concat('{\"chunk\":\"', hex(id div 500), '\",\"index\":', id % 500, '}')",
        "topic": "'headrace.events'",
        "topic_id": "'kZT5bQ4bQ0u1hXWQx0VbIQ'",
        "partition": "int(id div 500 % 4)",
        "offset": "id",
        "landed_at": at,
        "day": f"date_add(date'2026-05-01', int(id div {A_DAY}))",
    }
    columns = [
        sf.expr(given.get(field.name, "null")).cast(field.dataType).alias(field.name)
        for field in SCHEMAS[EVENTS].fields
    ]
    constant = "array(" + ", ".join(f"'{word}'" for word in words) + ")"
    for first in range(0, rows, A_DAY):
        last = min(rows, first + A_DAY)
        frame = spark.range(first, last, 1, -(-(last - first) // A_FILE)).withColumn("words", sf.expr(constant))
        frame.select(*columns).write.format("delta").mode("append").save(str(lake / EVENTS))


def merge(spark: SparkSession, lake: Path, way: str, meter: Meter) -> dict[str, float]:
    """Merges all days to the end; the cost."""
    inventory = Inventory(Storage(spark), str(lake / EVENTS), FILE_BYTES)
    inventory.latest()
    meter.start()
    began, merged = time.monotonic(), 0
    with (
        patch.object(compaction, "stepwise", lambda _: way != WAYS[0]),
        patch.object(rewrite, "unsupported", lambda _: None if way == WAYS[2] else "as Spark merges"),
    ):
        for piece in iter(lambda: _next(inventory), None):
            assert compaction.merge(spark, str(lake / EVENTS), piece, inventory)
            inventory.latest()
            merged += piece.size
    meter.batch(1)
    return {"seconds": time.monotonic() - began, "cpu": meter.batches[-1][1], "bytes_merged": merged}


def _next(inventory: Inventory) -> choice.Piece | None:
    """As on the day after: each file is rewritten once."""
    now = time.time() + choice.SETTLED
    return choice.choose({EVENTS: inventory.days}, today="9999", now=now, file_bytes=FILE_BYTES, ratios={})


def read_by_process(engine: str, lake: Path, stream: str) -> tuple[int, int]:
    """(bytes, rows) of an engine in a process of its own: bytes by `read` calls, as the kernel counts them."""
    imports, _, act = READ[engine].rpartition("\n")
    if engine == "deltalake":
        first, second, build, act = READ[engine].split("\n")
        imports, act = f"{first}\n{second}", f"{build}\n{act}"
    count = "int(open('/proc/self/io').readline().split()[1])"
    script = (
        f"lake, stream = {str(lake)!r}, {stream!r}\n{imports}\nbefore = {count}\n{act}\nprint({count} - before, found)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    count_read, found = done.stdout.split()[-2:]
    return int(count_read), int(found)


def read_by_spark(spark: SparkSession, lake: Path, stream: str) -> tuple[int, int]:
    """(bytes, rows) of Spark, as the kernel counts them for its JVM."""
    pid = java_class(spark, "java.lang.ProcessHandle").current().pid()
    count = Path(f"/proc/{pid}/io")
    frame = spark.read.format("delta").load(str(lake / EVENTS)).where(sf.col("stream") == stream)
    columns = [sf.max(sf.hash(sf.col(f"`{name}`"))) for name in frame.columns]
    before = int(count.read_text().split()[1])
    row = frame.agg(sf.count(sf.lit(1)), *columns).first()
    assert row is not None
    return int(count.read_text().split()[1]) - before, int(row[0])


def measure(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Both tables, merged and read."""
    spark = session(LakeSettings(jars=jars("spark"), driver_memory="2g"), LogSettings())
    began = time.monotonic()
    fill_table(spark, folder / "landed", arguments.rows, arguments.streams)
    print(f"{arguments.rows:,} rows after {time.monotonic() - began:.0f} s", flush=True)
    stream = f"app.service-{arguments.streams // 2:04}"
    found: dict[str, Any] = {}
    for way in WAYS:  # the JVM compiles what merges
        fill_table(spark, folder / "warm", 3 * A_FILE, arguments.streams)
        merge(spark, folder / "warm", way, Meter(-1))
        shutil.rmtree(folder / "warm")
    for way in WAYS:
        lake = folder / way.replace(" ", "-")
        shutil.copytree(folder / "landed", lake, copy_function=os.link)
        merged = merge(spark, lake, way, Meter(-1))
        table = DeltaTable(str(lake / EVENTS))
        size = sum(table.get_add_actions(flatten=True)["size_bytes"].to_pylist())
        read_by_spark(spark, lake, "app.service-0000")  # classes are loaded now
        reads = {engine: read_by_process(engine, lake, stream) for engine in READ}
        reads["Spark"] = read_by_spark(spark, lake, stream)
        if len({rows for _, rows in reads.values()}) != 1:
            sys.exit(f"the engines disagree, so no figure: {reads}")
        found[way] = {
            "merge": merged, "files": len(table.file_uris()), "bytes": size, "rows": reads["Spark"][1],
            "read": {engine: count for engine, (count, _) in reads.items()},
        }  # fmt: skip
        print(way, json.dumps(found[way]), flush=True)
    spark.stop()
    return found


def measure_landing(events: int, size: int, *, rounds: int = 3, warm: int = 1) -> list[dict[str, float]]:
    """CPU-s per million records landed, without and with statistics of `stream` and `source`, in turn in one JVM."""
    before = ("received_time", "event_time", "topic_id", "partition", "offset")  # an order that no version made
    given = {"without": before, "with": layout.SKIPPED_BY}
    with stage() as (broker, folder):
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap)
        asyncio.run(fill(kafka, events))
        spark = session(LakeSettings(jars=jars("spark"), driver_memory="2g"), LogSettings())
        meter = Meter(broker.pid)
        result = []
        for number in range(warm + rounds):
            figures = {}
            for name in sorted(given, reverse=bool(number % 2)):
                here = folder / f"{name}-{number}"
                with patch.object(layout, "SKIPPED_BY", given[name]):
                    layout.create(Storage(spark), str(here / "lake"))
                meter.start()
                land(spark, kafka, size, here, meter, "map")
                figures[name] = meter.per_million(size)
                prove(here / "lake", events, plain=False)
                shutil.rmtree(here)
            print(f"round {number}:", figures, flush=True)
            if number >= warm:
                result.append(figures)
        spark.stop()
    return result


def lines(result: dict[str, Any]) -> Iterator[str]:
    """The table."""
    yield "| what | " + " | ".join(WAYS) + " |"
    yield "|---|" + "---|" * len(WAYS)
    tables = [result["tables"][way] for way in WAYS]
    yield "| files | " + " | ".join(str(table["files"]) for table in tables) + " |"
    yield "| MB in all | " + " | ".join(f"{table['bytes'] / 1e6:.0f}" for table in tables) + " |"
    yield (
        "| CPU-s to merge them, per GB | "
        + " | ".join(f"{table['merge']['cpu'] / table['merge']['bytes_merged'] * 1e9:.0f}" for table in tables)
        + " |"
    )
    for engine in ENGINES:
        yield (
            f"| one stream, {engine}: MB read | "
            + " | ".join(
                f"{table['read'][engine] / 1e6:.1f} ({table['read'][engine] / table['bytes']:.1%})" for table in tables
            )
            + " |"
        )


def write(result: dict[str, Any]) -> None:
    """The results as JSON and as a table; the table is also printed."""
    head = (
        f"All columns of one stream of {result['streams']}, in a table of {result['rows']:,} rows, merged by the job's"
        f" compaction; in brackets: of all bytes. PySpark {result['machine']['pyspark']}, Delta {result['machine']['delta']},"
        f" {result['machine']['cpus']} CPUs ({result['machine']['cpu']}). Written by `python -m benchmarks.layout`.\n\n"
    )
    text = head + "\n".join(lines(result)) + "\n"
    if result["landing"]:
        ratio = statistics.median(entry["with"] / entry["without"] for entry in result["landing"])
        costs = [statistics.median(entry[name] for entry in result["landing"]) for name in ("without", "with")]
        text += (
            f"\nCPU-s per million records landed without statistics of `stream` and `source`: {costs[0]:.1f}, with them:"
            f" {costs[1]:.1f} (median of the ratios of {len(result['landing'])} rounds: {ratio:.2f}).\n"
        )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "layout.json").write_text(json.dumps(result, indent=1) + "\n")
    (RESULTS / "layout.md").write_text(text)
    print(text)


def main() -> None:
    """Runs it all and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000, help="0: keep the last figures of reading")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument(
        "--landing", type=int, default=0, metavar="EVENTS", help="also land this number of events, both ways"
    )
    parser.add_argument("--batch", type=int, default=190_000, help="records in a batch of these")
    arguments = parser.parse_args()
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    result = {"machine": machine(), "rows": arguments.rows, "streams": arguments.streams}
    if arguments.rows:
        with tempfile.TemporaryDirectory(prefix="headrace-layout-") as name:
            result["tables"] = measure(Path(name), arguments)
    else:
        result = json.loads((RESULTS / "layout.json").read_text())
    result["landing"] = measure_landing(arguments.landing, arguments.batch) if arguments.landing else []
    write(result)


if __name__ == "__main__":
    main()
