"""The memory of the driver by what it remembers: ids of the dedup horizon, and ids that were erased.

Makes a lake whose events table has a given number of ids within the horizon. For each number and each index a process of its own
starts Spark as the landing job does, fills the index from the table, and measures what the JVM (collected) and Python hold.
Then the same for erased ids: the memory that they take, and the CPU of asking for a batch's ids, first and again. Writes
``benchmarks/results/driver-memory.json`` and ``.md``.

    .venv/bin/python -m benchmarks.driver_memory [--ids 0 1000000 4000000] [--erased 0 10000 1000000] [--heap 2g]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any, cast

import psutil
from headrace_cli.machine.toolchain import jars, java_home
from headrace_common.operations import log as logs
from headrace_common.operations.settings import LogSettings
from headrace_lake.configuration.settings import LakeSettings
from headrace_lake.dedup.choose import open_index
from headrace_lake.spark.engine import session
from headrace_lake.spark.jvm import java_class
from headrace_lake.spark.storage import Storage
from headrace_lake.tables import erasures, layout
from headrace_lake.tables.layout import EVENTS, SCHEMAS
from pyspark.sql import SparkSession

from benchmarks.landings.stage import RESULTS, machine

BATCH = 10_000
"""Ids of the batch that is compared with erased ones."""
MIB = 1 << 20


def resident() -> dict[str, float]:
    """MiB that this process and its JVM hold."""
    me = psutil.Process()
    java = [process for process in me.children(recursive=True) if "java" in process.name()]
    return {"python": me.memory_info().rss / MIB, "jvm": sum(process.memory_info().rss for process in java) / MIB}


def cpu() -> float:
    """CPU seconds of this process and its descendants."""
    me = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in (me, *me.children(recursive=True)))


def collected(spark: SparkSession) -> dict[str, float]:
    """`resident`, and the heap in use, after a collection of garbage."""
    java_class(spark, "java.lang.System").gc()
    time.sleep(1)
    runtime = java_class(spark, "java.lang.Runtime").getRuntime()
    return {**resident(), "heap": (runtime.totalMemory() - runtime.freeMemory()) / MIB}


def make(spark: SparkSession, lake: str, ids: int) -> None:
    """Adds events with `ids` different ids, received just now, in one partition."""
    layout.create(Storage(spark), lake)
    own = {
        "event_id": "concat('d.', md5(string(id)))", "received_time": "current_timestamp()", "topic_id": "'t'",
        "partition": "0", "offset": "id", "landed_at": "current_timestamp()", "day": "current_date()",
    }  # fmt: skip
    rows = spark.range(ids, numPartitions=4).selectExpr(
        *(f"cast({own.get(f.name, 'null')} as {f.dataType.simpleString()}) as `{f.name}`" for f in SCHEMAS[EVENTS])
    )
    rows.write.format("delta").mode("append").save(f"{lake}/{EVENTS}")


def erase(spark: SparkSession, lake: str, ids: int) -> None:
    """Lists `ids` ids as erased."""
    erasures.create(Storage(spark), lake)
    listed = "transform(sequence(id * 10000, id * 10000 + 9999), i -> concat('d.', md5(concat('erased', i))))"
    own = {"erasure": "'e'", "table": f"'{EVENTS}'", "ids": listed}
    rows = spark.range(ids // 10_000).selectExpr(
        *(f"cast({own.get(f.name, 'null')} as {f.dataType.simpleString()}) as `{f.name}`" for f in erasures.SCHEMA)
    )
    rows.write.format("delta").mode("append").save(f"{lake}/{erasures.ERASURES}")


def start(lake: str, heap: str, dedup: str = "auto") -> tuple[SparkSession, LakeSettings]:
    """Spark as the landing job has it."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    size = int(heap[:-1]) * (1 << {"g": 30, "m": 20}[heap[-1]])
    settings = LakeSettings(
        path=lake, jars=jars("spark"), driver_memory=heap, dedup=cast("Any", dedup), dedup_memory=size * 2 // 5
    )
    return session(settings, LogSettings()), settings


def of_ids(lake: str, ids: int, heap: str, dedup: str) -> dict[str, Any]:
    """The memory with `ids` remembered."""
    spark, settings = start(lake, heap, dedup)
    index = open_index(spark, settings, "t", logs.configure(LogSettings(level="error"), "memory"))
    began = collected(spark)
    if ids:
        index.add_landed(int(time.time() * 1000) - 86_400_000)
    state = index.state()
    after = collected(spark)
    spark.stop()
    assert state.ids == ids, state
    return {"ids": ids, "dedup": dedup, "bytes": state.bytes, "began": began, "after": after}


def of_erased(lake: str, ids: int, heap: str) -> dict[str, Any]:
    """The memory with `ids` erased, and the CPU seconds of a batch's question."""
    spark, _ = start(lake, heap)
    if ids:
        erase(spark, lake, ids)
    asked = spark.range(BATCH).selectExpr("concat('d.', md5(string(id))) as event_id")
    erased = erasures.ErasedIds(spark, lake)
    seconds = []
    for _ in range(8):
        before = cpu()
        erased.refresh()
        found = erased.marked(asked, "event_id")
        found.groupBy(*(name for name in found.columns if name != "event_id")).count().collect()
        seconds.append(round(cpu() - before, 2))
    after = collected(spark)
    spark.stop()
    return {"ids": ids, "after": after, "cpu_seconds": seconds}


def main() -> None:
    """Measures, each in a process of its own, and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, nargs="+", default=[0, 1_000_000, 4_000_000])
    parser.add_argument("--erased", type=int, nargs="*", default=[0, 10_000, 1_000_000])
    parser.add_argument("--heap", default="2g")
    parser.add_argument("--one", nargs=4, metavar=("WHAT", "LAKE", "IDS", "DEDUP"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        what, lake, ids, dedup = arguments.one
        if what == "make":
            spark, _ = start(lake, arguments.heap)
            make(spark, lake, int(ids))
            spark.stop()
            return
        found = (
            of_ids(lake, int(ids), arguments.heap, dedup)
            if what == "ids"
            else of_erased(lake, int(ids), arguments.heap)
        )
        print(json.dumps(found))
        return
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="headrace-memory-") as folder:
        for ids in arguments.ids:
            lake = f"{folder}/lake-{ids}"
            _run(arguments, "make", lake, ids, "auto")
            results += [_run(arguments, "ids", lake, ids, dedup) for dedup in ("map", "arrays")]
        results += [_run(arguments, "erased", f"{folder}/erased-{ids}", ids, "auto") for ids in arguments.erased]
    write(arguments.heap, results)


def _run(arguments: argparse.Namespace, what: str, lake: str, ids: int, dedup: str) -> dict[str, Any]:
    program = [sys.executable, "-m", "benchmarks.driver_memory", "--heap", arguments.heap]
    program += ["--one", what, lake, str(ids), dedup]
    done = subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1]) if what != "make" else {}
    if found:
        print(what, found, flush=True)
    return found


def write(heap: str, results: list[dict[str, Any]]) -> None:
    """The results as JSON and as tables; the tables are also printed."""
    rows = [
        f"| {row['ids']:,} | `{row['dedup']}` | {row['after']['jvm']:.0f} | {row['after']['heap']:.0f} | "
        f"{row['after']['python']:.0f} | {row['bytes'] / row['ids'] if row['ids'] else 0:.0f} |"
        for row in results
        if "dedup" in row
    ]
    erased = [
        f"| {row['ids']:,} | {row['after']['jvm']:.0f} | {row['after']['heap']:.0f} | {row['cpu_seconds'][0]:.2f} | "
        f"{sorted(row['cpu_seconds'][3:])[len(row['cpu_seconds'][3:]) // 2]:.2f} |"
        for row in results
        if "cpu_seconds" in row
    ]
    text = "\n".join(
        [
            f"Memory of the driver with a heap of {heap}, in MiB, after a collection of garbage. Written by"
            " `python -m benchmarks.driver_memory`.",
            "",
            "| ids remembered | index | JVM resident | heap in use | Python resident | bytes an id |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            f"| ids erased | JVM resident | heap in use | CPU-s of the first batch of {BATCH:,} ids | of a later one |",
            "|---|---|---|---|---|",
            *erased,
            "",
        ]
    )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "driver-memory.json").write_text(json.dumps({"machine": machine(), "runs": results}, indent=1) + "\n")
    (RESULTS / "driver-memory.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
