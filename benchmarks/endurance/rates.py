"""Lands a steady stream and merges its files: what both cost together, by rate and by how often a batch begins.

A run measures one rate and adds its line to the table of those that were measured before.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import psutil
from headrace_cli.verbs import query
from headrace_reader.proof import exactly_once

from benchmarks.endurance.stage import RESULTS, say, stage
from benchmarks.endurance.steady import PARTITIONS, Source, use
from benchmarks.landings.stage import machine

_JSON: Final = RESULTS / "endurance-rates.json"
_MERGED: Final = "OPTIMIZE"


@dataclass(frozen=True)
class Measured:
    """The cost of one rate, and the bytes that it wrote into the events table; `load`: the machine's at the end."""

    rate: int
    trigger: float
    minutes: float
    cpu_per_million: float
    cpu_of_a_batch: float
    files_landed_an_hour: float
    files_merged_an_hour: float
    bytes_written: float
    load: float
    compiling: float | None = None
    """CPU-s per million events in the JVM's compilers: part of the cost, and less the longer a job runs."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--rate", type=int, default=5_000, help="events a second")
    parser.add_argument("--trigger", type=float, default=5, help="the job's LAKE__TRIGGER, seconds")
    parser.add_argument(
        "--warm", type=float, default=25, help="earlier minutes that do not count: the JVM compiles more than it lands"
    )


def run(options: argparse.Namespace) -> int:
    """Runs the trial. The exit status is 1 if a row is wrong."""
    with stage(PARTITIONS) as here:
        source = Source(here.kafka, options.rate)
        job = here.start(trigger=options.trigger, batch_records=500_000)
        job.next("landing")
        source.start()
        time.sleep(options.warm * 60)
        (_, cpu), landed, log = use(job), _landed(here.lake), _log(here.lake)
        batches, compiled = _batches(job.lines), _compiled(job.pid)
        time.sleep(options.minutes * 60)
        cpu, landed, wrote = use(job)[1] - cpu, _landed(here.lake) - landed, _log(here.lake) - log
        batches, compiled = _batches(job.lines) - batches, _compiled(job.pid) - compiled
        load = machine()["load_average"]
        source.stop()
        while _landed(here.lake) < source.sent:
            job.next("landed")
        job.terminate()
        job.wait()
        wrong = [row for row in exactly_once(here.lake) if not row["ok"]]
        if wrong:
            say(f"WRONG: {wrong}")
            return 1
    hours = options.minutes / 60
    bytes_landed = max(1, wrote["bytes landed"])
    found = Measured(
        options.rate,
        options.trigger,
        options.minutes,
        cpu / max(1, landed) * 1e6,
        cpu / max(1, batches),
        wrote["files landed"] / hours,
        wrote["files merged"] / hours,
        (bytes_landed + wrote["bytes merged"]) / bytes_landed,
        load,
        compiled / max(1, landed) * 1e6,
    )
    say(str(found))
    if not options.dry:
        _write(found)
    return 0


def _landed(lake: Path) -> int:
    """Records of the batches that are in the lake."""
    return int(query.run("select coalesce(sum(records), 0)::bigint as n from batches", lake)[0]["n"])


def _batches(lines: list[dict[str, object]]) -> int:
    return sum(line["event"] == "landed" for line in lines)


def _compiled(pid: int) -> float:
    """Returns the CPU-seconds of the compilers' threads in the JVM below process `pid`."""
    found = 0.0
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError):
            for thread in process.threads():
                name = Path(f"/proc/{process.pid}/task/{thread.id}/comm").read_text()
                found += (thread.user_time + thread.system_time) * ("CompilerThre" in name)
    return found


def _log(lake: Path) -> Counter[str]:
    """Returns what landing and merging have written into the events table so far."""
    found: Counter[str] = Counter()
    for path in (lake / "events" / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        by = "merged" if any(a.get("commitInfo", {}).get("operation") == _MERGED for a in actions) else "landed"
        for action in actions:
            if "add" in action:
                found[f"files {by}"] += 1
                found[f"bytes {by}"] += action["add"]["size"]
    return found


def _write(found: Measured) -> None:
    """Adds the line to the results' files."""
    before = json.loads(_JSON.read_text())["measured"] if _JSON.exists() else []
    lines = [Measured(**each) for each in before]
    lines = [each for each in lines if (each.rate, each.trigger) != (found.rate, found.trigger)] + [found]
    lines.sort(key=lambda each: (each.rate, each.trigger))
    where = machine()
    _JSON.write_text(json.dumps({"machine": where, "measured": [asdict(each) for each in lines]}, indent=1) + "\n")
    text = (
        "Landing and merging together at a steady rate: CPU of driver and JVM after minutes that warm it, and what is written"
        f" into the events table. PySpark {where['pyspark']}, Delta {where['delta']}, {where['cpus']} CPUs ({where['cpu']}),"
        " shared with the broker, the sender and other work. Written by `python -m benchmarks.endurance rates`.\n\n"
        "| events/s | LAKE__TRIGGER (s) | CPU-s per million events | of it the JVM's compilers | cores | CPU-s of a batch | files"
        " landed an hour | files merged an hour | bytes written ÷ landed | minutes | load average |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|\n"
    )
    for each in lines:
        compiling = "not measured" if each.compiling is None else f"{each.compiling:.1f}"
        text += (
            f"| {each.rate:,} | {each.trigger:g} | {each.cpu_per_million:.1f} | {compiling} |"
            f" {each.cpu_per_million * each.rate / 1e6:.2f} | {each.cpu_of_a_batch:.2f} |"
            f" {each.files_landed_an_hour:,.0f} | {each.files_merged_an_hour:,.0f} |"
            f" {each.bytes_written:.2f} | {each.minutes:g} | {each.load:.1f} |\n"
        )
    (RESULTS / "endurance-rates.md").write_text(text)
