"""Lands hundreds of small batches: do batches become slower, do files accumulate, do readers see the right rows?

Three readers loop beside the job: DuckDB over the log's file list, deltalake's own engine, and a separate Spark. Each compares
row sets with what `batches` said before the look.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from deltalake import DeltaTable, QueryBuilder
from headrace_cli.machine.jars import jars
from headrace_cli.machine.java import java_home
from headrace_common.operations.settings import LogSettings
from headrace_lake.configuration.settings import LakeSettings
from headrace_lake.spark.engine import running
from headrace_reader.proof import exactly_once
from pyspark.sql import SparkSession

from benchmarks.endurance.stage import Stage, say, stage, write
from benchmarks.endurance.traffic import Traffic, fill
from benchmarks.endurance.verify import compare

PARTITIONS: Final = 4
WINDOW: Final = 20
"""How many batches at the start are compared with as many at the end."""

_PAUSE: Final = 1.0  # seconds between two looks of a reader: readers must leave CPU for the job


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--warm", type=int, default=40, help="earlier batches that do not count: they warm up the JVM")
    parser.add_argument("--events", type=int, default=2_000, help="events in each batch")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for --batches and --warm")


_RANGES: Final = """
    select count(*) as ranges from (
        select b.topic_id, b."partition", b."from", b.events, count(e."offset") as found, count(distinct e."offset") as different
        from batches b left join events e on e.topic_id = b.topic_id and e."partition" = b."partition"
            and e."offset" >= b."from" and e."offset" < b."to"
        group by b.topic_id, b."partition", b."from", b.events)
    where events <> found or found <> different"""


class Readers:
    """Threads that read the lake until stopped, one per engine. `spark`: a session with Delta; None leaves this engine out."""

    def __init__(self, lake: Path, spark: SparkSession | None) -> None:
        self._lake = lake
        self._spark = spark
        self._stop = threading.Event()
        engines = {"duckdb": self.duckdb, "deltalake": self.deltalake, **({"spark": self.spark} if spark else {})}
        self.looks = dict.fromkeys(engines, 0)
        self.wrong: list[str] = []
        self._threads = [threading.Thread(target=self._loop, args=each, daemon=True) for each in engines.items()]

    def start(self) -> None:
        """Starts the readers."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends after the current look."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _loop(self, name: str, look: Callable[[], list[str]]) -> None:
        while not self._stop.wait(_PAUSE):
            try:
                self.wrong += [f"{name}: {problem}" for problem in look()]
            except Exception as error:
                self.wrong.append(f"{name}: {error}")
                return
            self.looks[name] += 1

    def duckdb(self) -> list[str]:
        """The errors that the named proof finds."""
        return [f"{row['check']}: {row['detail']}" for row in exactly_once(self._lake) if not row["ok"]]

    def deltalake(self) -> list[str]:
        """Ranges without the rows that `batches` (read first) says, by deltalake's engine."""
        engine = QueryBuilder()
        for name in ("batches", "events"):
            engine = engine.register(name, DeltaTable(str(self._lake / name)))
        (ranges,) = engine.execute(_RANGES).read_all().column("ranges").to_pylist()
        return _said(ranges)

    def spark(self) -> list[str]:
        """The same, by Spark."""
        assert self._spark is not None
        for name in ("batches", "events"):
            self._spark.read.format("delta").load(str(self._lake / name)).createOrReplaceTempView(name)
        (row,) = self._spark.sql(_RANGES.replace('"', "`")).collect()
        return _said(row["ranges"])


def _said(ranges: int) -> list[str]:
    return [f"{ranges} ranges do not have the rows that batches says"] if ranges else []


def run(options: argparse.Namespace) -> int:
    """Runs the trial. The exit status is 1 if a row was wrong, at the end or for a reader."""
    warm, batches = max(2, round(options.warm * options.scale)), max(2, round(options.batches * options.scale))
    events = options.events * (warm + batches)
    with stage(PARTITIONS) as here:
        sent = here.folder / "sent.csv"
        asyncio.run(fill(here.kafka, Traffic(events, PARTITIONS), sent, 0))
        with _spark() as spark:
            readers = Readers(here.lake, spark)
            seconds, files = _land(here, readers, options.events, events)
        wrong = readers.wrong + compare(here.lake, sent, collapse=LakeSettings().horizon > 0)
        for line in wrong:
            say(f"WRONG: {line}")
        if wrong:
            return 1
    counted = seconds[warm : warm + batches]
    window = min(WINDOW, len(counted) // 2)
    first, last = statistics.median(counted[:window]), statistics.median(counted[-window:])
    rows: list[tuple[str, object]] = [
        ("batches", f"{len(counted)}, after {warm} that warm the JVM"),
        (f"seconds a batch, the first {window} (median)", f"{first:.2f}"),
        (f"seconds a batch, the last {window} (median)", f"{last:.2f}"),
        ("last to first", f"{last / first:.2f}"),
        ("data files of events, listed by the table", files[-1]["active"]),
        ("… in the folder", files[-1]["events"]),
        ("… most at any time", max(entry["events"] for entry in files)),
        ("files of the tables' logs", files[-1]["logs"]),
        ("files of the checkpoint", files[-1]["checkpoint"]),
        ("looks of readers beside it, none of them wrong", sum(readers.looks.values())),
    ]
    result = {"warm": warm, "seconds": seconds, "files": files, "looks": readers.looks, "ratio": last / first}
    write("batches", f"{len(counted)} batches of {options.events:,} events.", rows, result, dry=options.dry)
    return 0


def _land(here: Stage, readers: Readers, size: int, events: int) -> tuple[list[float], list[dict[str, int]]]:
    """The duration of each batch until everything has landed, and the number of files after every tenth batch."""
    job = here.start(batch_records=size)
    seconds: list[float] = []
    files = []
    landed = 0
    while landed < events:
        line = job.next("landed")
        seconds.append(line["seconds"])
        landed += line["records"]
        if len(seconds) == 1:
            readers.start()
        if len(seconds) % 10 == 0 or landed == events:
            files.append(_files(here))
            say(f"batch {len(seconds)}: {line['seconds']} s, {files[-1]}")
    readers.stop()
    job.terminate()
    job.wait()
    return seconds, files


@contextmanager
def _spark() -> Iterator[SparkSession]:
    """A reader's session with one thread, so that it takes little CPU from the measured job."""
    os.environ["JAVA_HOME"] = str(java_home())
    with running(LakeSettings(jars=jars("spark"), master="local[1]"), LogSettings()) as session:
        yield session


def _files(here: Stage) -> dict[str, int]:
    events = list((here.lake / "events").rglob("*.parquet"))
    return {
        "active": len(DeltaTable(str(here.lake / "events")).file_uris()),
        "events": sum("_delta_log" not in path.parts for path in events),
        "logs": sum(1 for path in here.lake.glob("*/_delta_log/**/*") if path.is_file()),
        "checkpoint": sum(1 for path in here.checkpoint.rglob("*") if path.is_file()),
    }
