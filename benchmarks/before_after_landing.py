"""What a change costs or saves in landing: ``landing.py`` of this commit and of an earlier one, in turns.

Each turn is a process of its own with the sources of its side: its own broker, topic and JVM, `--warm` rounds that do not count,
then one that does. So nothing of one side is left when the other runs. Writes the medians of both sides and of the pairs' ratios
to ``benchmarks/results/before-after-landing.json`` and ``.md``. Uncommitted changes are not measured.

    .venv/bin/python benchmarks/before_after_landing.py REVISION [--pairs 5] [--events 760000] [--batch 190000] [--warm 2]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import load

RESULTS = Path(__file__).parent / "results"
BEFORE, AFTER = "before", "after"
COST = "cpu_seconds_per_million"
PARTS = (*load.PARTS, "cli", "spark_jobs")


def main() -> None:
    """Takes the pairs and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", help="the revision that came before")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--events", type=int, default=760_000)
    parser.add_argument("--batch", type=int, default=190_000, help="records in a batch")
    parser.add_argument("--warm", type=int, default=2, help="rounds of each process that do not count")
    arguments = parser.parse_args()
    taken: dict[str, list[dict[str, float]]] = {BEFORE: [], AFTER: []}
    with contextlib.ExitStack() as stack:
        trees = {
            side: stack.enter_context(load.checked_out(revision))
            for side, revision in ((BEFORE, arguments.revision), (AFTER, "HEAD"))
        }
        for pair in range(arguments.pairs):
            for side in (BEFORE, AFTER) if pair % 2 else (AFTER, BEFORE):
                taken[side].append(_turn(trees[side], arguments))
                print(f"pair {pair}, {side}: {taken[side][-1]}", flush=True)
    _write(arguments, taken)


def _turn(tree: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """CPU seconds per million events by way of landing, as the tree's own ``landing.py`` measures them."""
    sources = os.pathsep.join(str(tree / part) for part in PARTS)
    command = [sys.executable, str(tree / "benchmarks" / "landing.py"), "--rounds", "1"]
    command += ["--warm", str(arguments.warm), "--events", str(arguments.events)]
    command += ["--batch", str(arguments.batch)]
    run = subprocess.run(command, cwd=tree, env={**os.environ, "PYTHONPATH": sources}, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{tree}: {run.stdout}{run.stderr}")
    found = json.loads((tree / "benchmarks" / "results" / "landing.json").read_text())
    figures: dict[str, float] = found[COST]
    return figures


def _write(arguments: argparse.Namespace, taken: dict[str, list[dict[str, float]]]) -> None:
    lines = [
        f"Landing of this tree beside {arguments.revision}, {arguments.events:,} events in batches of {arguments.batch:,},"
        f" in turns: medians of {arguments.pairs} pairs; load average {os.getloadavg()[0]:.1f}."
        " Written by `benchmarks/before_after_landing.py`.",
        "",
        "| way | CPU-s per million events, before | after | after / before, median of the pairs | all pairs |",
        "|---|---|---|---|---|",
    ]
    found: dict[str, Any] = {"machine": load.machine(), "before": arguments.revision, "ways": {}}
    for way in taken[BEFORE][0]:
        before, after = ([turn[way] for turn in taken[side]] for side in (BEFORE, AFTER))
        ratios = [late / early for early, late in zip(before, after, strict=True)]
        found["ways"][way] = {BEFORE: before, AFTER: after, "ratios": ratios, "ratio": statistics.median(ratios)}
        every = " ".join(f"{ratio:.2f}" for ratio in ratios)
        lines.append(
            f"| {way} | {statistics.median(before):.2f} | {statistics.median(after):.2f} "
            f"| {statistics.median(ratios):.3f} | {every} |"
        )
    (RESULTS / "before-after-landing.json").write_text(json.dumps(found, indent=2) + "\n")
    (RESULTS / "before-after-landing.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
