"""Measures what a change costs or saves: the receivers of this tree and of an earlier revision, in turns, against one broker.

Pairs of phases, one of each side, so that a machine that grows slower or faster slows both. Writes the median of each side and
of the pairs' ratios to ``benchmarks/results/before-after.json`` and ``.md``.

    .venv/bin/python -m benchmarks.before_after REVISION [--pairs 5] [--seconds 5] [--only Forward] [--name before-after]
    .venv/bin/python -m benchmarks.before_after REVISION --landing [--pairs 5] [--events 760000] [--warm 2]

With `native` as the revision, it is this tree without its native core beside this tree with it. With ``--landing`` it is
``landing.py`` of this commit (without what is not committed) and of the revision: each turn is a process of its own with its own
broker, topic and JVM. That writes ``before-after-landing``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace_lumberjack.wire import V2, encode

from benchmarks.receivers import load
from benchmarks.receivers.forward import ForwardTalker, frames
from benchmarks.receivers.lumberjack import WindowTalker, filebeat

RESULTS = Path(__file__).parent / "results"
COST = "cpu_seconds_per_million"
BEFORE, AFTER = "before", "after"
NATIVE = "native"
CONNECTIONS = 16
PARTS = (*load.PARTS, "cli", "live", "spark_jobs")
Taken = dict[str, dict[str, list[dict[str, float]]]]
"""By shape and side, the phases."""


def shapes(seconds: float) -> dict[str, tuple[str, load.Load, Callable[[int], load.Talker]]]:
    """By name: the receiver, how it is loaded, and who talks to it."""
    many, some, single = frames(500), frames(20), frames(1)
    windows = [encode([filebeat(n, *entry) for n, entry in enumerate(entries)], level=3) for entries, _ in many]
    return {
        "Forward, 16 connections, 500 events a frame": (
            "headrace_forward",
            load.Load(CONNECTIONS, 500, seconds),
            lambda number: ForwardTalker(number, many),
        ),
        "Forward, 64 connections, 20 events a frame": (
            "headrace_forward",
            load.Load(64, 20, seconds),
            lambda number: ForwardTalker(number, some),
        ),
        "Forward, 256 connections, 1 event a frame": (
            "headrace_forward",
            load.Load(256, 1, seconds),
            lambda number: ForwardTalker(number, single),
        ),
        "Forward, 16 connections, 1 event a frame": (
            "headrace_forward",
            load.Load(CONNECTIONS, 1, seconds),
            lambda number: ForwardTalker(number, single),
        ),
        "Lumberjack, 16 connections, J in C, windows of 500": (
            "headrace_lumberjack",
            load.Load(CONNECTIONS, 500, seconds),
            lambda number: WindowTalker(number, windows, 500, V2),
        ),
    }


def main() -> None:
    """Takes the pairs and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", help="the revision that came before, or `native`")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--only", default="", help="only the shapes whose name contains this")
    parser.add_argument("--name", default="before-after", help="the name of the results")
    parser.add_argument("--landing", action="store_true", help="the landing job instead of the receivers")
    parser.add_argument("--events", type=int, default=760_000, help="that are landed")
    parser.add_argument("--warm", type=int, default=2, help="rounds of each landing process that do not count")
    arguments = parser.parse_args()
    if arguments.landing:
        arguments.name += "-landing"
    with contextlib.ExitStack() as stack:
        write(arguments, (_landing if arguments.landing else _receivers)(stack, arguments))


def _sides(pair: int) -> tuple[str, str]:
    return (BEFORE, AFTER) if pair % 2 else (AFTER, BEFORE)


def _receivers(stack: contextlib.ExitStack, arguments: argparse.Namespace) -> Taken:
    taken: Taken = {}
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    bootstrap = stack.enter_context(load.kafka(folder))
    sides: dict[str, tuple[Path, dict[str, str]]] = {
        BEFORE: (load.ROOT, {"HEADRACE_NATIVE": "off"}),
        AFTER: (load.ROOT, {"HEADRACE_NATIVE": "require"}),
    }
    if arguments.revision != NATIVE:
        sides = {BEFORE: (stack.enter_context(load.checked_out(arguments.revision)), {}), AFTER: (load.ROOT, {})}
    servers: dict[tuple[str, str], Any] = {}
    for name, (module, shape, talker) in shapes(arguments.seconds).items():
        if arguments.only not in name:
            continue
        taken[name] = {BEFORE: [], AFTER: []}
        for side, (tree, variables) in sides.items():
            if (module, side) not in servers:
                logs = folder / side
                logs.mkdir(exist_ok=True)
                started = load.receiver(module, bootstrap, logs, tree, variables)
                servers[module, side] = stack.enter_context(started)
        for pair in range(arguments.pairs + 1):  # the first warms up
            for side in _sides(pair):
                process, port = servers[module, side]
                phase = asyncio.run(load.run(shape, talker, port, process, bootstrap))
                if pair:
                    taken[name][side].append(phase)
    return taken


def _landing(stack: contextlib.ExitStack, arguments: argparse.Namespace) -> Taken:
    revisions = {BEFORE: arguments.revision, AFTER: "HEAD"}
    trees = {side: stack.enter_context(load.checked_out(revision)) for side, revision in revisions.items()}
    taken: Taken = {}
    for pair in range(arguments.pairs):
        for side in _sides(pair):
            figures = _landed(trees[side], arguments)
            print(f"pair {pair}, {side}: {figures}", flush=True)
            for way, cost in figures.items():
                taken.setdefault(way, {BEFORE: [], AFTER: []})[side].append({COST: cost})
    return taken


def _landed(tree: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """CPU seconds per million events by way of landing, as the tree's own ``landing.py`` measures them."""
    sources = os.pathsep.join(
        str(tree / part) for part in (*PARTS, "benchmarks")
    )  # older ones find their rooms by the last
    command = [sys.executable, "-m", "benchmarks.landing", "--rounds", "1"]
    command += ["--warm", str(arguments.warm), "--events", str(arguments.events)]
    run = subprocess.run(command, cwd=tree, env={**os.environ, "PYTHONPATH": sources}, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{tree}: {run.stdout}{run.stderr}")
    figures: dict[str, float] = json.loads((tree / "benchmarks" / "results" / "landing.json").read_text())[COST]
    return figures


def slowest(phases: list[dict[str, float]]) -> str:
    """The median of the phases' slowest acknowledgements, where there are any."""
    return f"{statistics.median(phase['ack_max_ms'] for phase in phases):,.0f} ms" if "ack_max_ms" in phases[0] else ""


def write(arguments: argparse.Namespace, taken: Taken) -> None:
    """The results, as JSON and as a table."""
    beside = "itself without its native core" if arguments.revision == NATIVE else arguments.revision
    lines = [
        f"This tree beside {beside}, acks=all, zstd, in turns: medians of {arguments.pairs} pairs; 2 CPUs, shared"
        " with the broker and the clients. Written by `python -m benchmarks.before_after`.",
        "",
        "| shape | CPU-s per million events, before | after | after / before, median of the pairs | all pairs"
        " | slowest acknowledgement, before | after |",
        "|---|---|---|---|---|---|---|",
    ]
    found: dict[str, Any] = {"machine": load.machine(), "before": arguments.revision, "pairs": {}}
    for name, sides in taken.items():
        before, after = ([phase[COST] for phase in sides[side]] for side in (BEFORE, AFTER))
        ratios = [late / early for early, late in zip(before, after, strict=True)]
        found["pairs"][name] = {BEFORE: before, AFTER: after, "ratios": ratios, "ratio": statistics.median(ratios)}
        found["pairs"][name]["phases"] = sides
        every = " ".join(f"{ratio:.2f}" for ratio in ratios)
        lines.append(
            f"| {name} | {statistics.median(before):.2f} | {statistics.median(after):.2f} "
            f"| {statistics.median(ratios):.3f} | {every} | {slowest(sides[BEFORE])} | {slowest(sides[AFTER])} |"
        )
    (RESULTS / f"{arguments.name}.json").write_text(json.dumps(found, indent=2) + "\n")
    (RESULTS / f"{arguments.name}.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
