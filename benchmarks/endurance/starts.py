"""Measures a start: CPU-seconds of Python and its JVM until each step of a `--once` run, and the Spark jobs up to its end.

The first run makes the tables and claims them; the others continue its checkpoint, each with a few events to land.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.endurance.stage import say, stage, write
from benchmarks.endurance.traffic import Traffic, fill

STEPS: Final = {
    "starting": "Python is there",
    "remembers ids in a map": "Spark is there",
    "landing": "it lands",
    "landed": "its first batch has landed",
}
"""Lines of the job's log -> what has happened by then."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--events", type=int, default=1_000, help="that each run lands")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of LAKE; repeatable"
    )


def run(options: argparse.Namespace) -> int:
    """Starts the job again and again. The exit status is 1 if one failed."""
    settings = dict(pair.split("=", 1) for pair in options.set)
    taken: dict[str, list[float]] = {name: [] for name in STEPS}
    with stage(4) as here:
        events = here.folder / "jobs"
        events.mkdir()
        spark = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": f"file://{events}",
        }
        for number in range(options.runs + 2):  # the last counts what Spark does, and nothing else
            asyncio.run(fill(here.kafka, Traffic(options.events, 4), here.folder / f"sent-{number}.csv", number))
            job = here.start(once=True, **settings, **({"spark": json.dumps(spark)} if number > options.runs else {}))
            for name in STEPS:
                job.next(name)
                spent = _cpu(job.pid)
                if 0 < number <= options.runs:
                    taken[name].append(spent)
                say(f"run {number}, {STEPS[name]}: {spent:.1f} CPU-s")
            if job.wait():
                say(job.tail())
                return 1
        counts = _counted(events)
    rows: list[tuple[str, object]] = [
        (f"CPU-s until {what}", f"{statistics.median(taken[name]):.1f}") for name, what in STEPS.items()
    ]
    rows += list(counts.items())
    title = f"Starts with `--once` that land {options.events:,} events; medians of {options.runs}."
    write("starts", title, rows, {"cpu_seconds": taken, **counts}, dry=options.dry)
    return 0


def _cpu(pid: int) -> float:
    process = psutil.Process(pid)
    return sum(sum(each.cpu_times()[:2]) for each in (process, *process.children(recursive=True)))


def _counted(folder: Path) -> dict[str, Any]:
    """Reads Spark's own log of events."""
    (log,) = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "appstatus")))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    names = [line["Event"].rpartition(".")[2] for line in lines]
    return {
        "Spark jobs of a run": names.count("SparkListenerJobStart"),
        "Spark statements of a run": names.count("SparkListenerSQLExecutionStart"),
    }
