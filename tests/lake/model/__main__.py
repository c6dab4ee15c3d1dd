"""``python -m tests.lake.model``: runs histories of the landing job, or replays one.

With ``--minutes`` it goes on where the ledger ends, and adds what it has run.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tests import ledger
from tests.lake.model.history import History
from tests.ledger import RESULTS, Entry

LEDGER: Final = RESULTS / "landing-model.jsonl"


def table(entries: Sequence[Entry]) -> str:
    """Returns what was run so far, in all."""
    seeds, failed, cpu, steps, rows, stops = (
        sum(each[name] for each in entries) for name in ("seeds", "failed", "cpu_seconds", "steps", "rows", "stops")
    )
    return (
        "Histories of the model of the landing job, each run once. Written by `tests.lake.model --minutes`;"
        " `landing-model.jsonl` has the ranges. A job steps wherever it may be killed or overtaken, and stops when another has"
        " taken over, or for a loss.\n\n"
        "| seeds | failures | CPU-s | steps | rows landed | jobs that stopped |\n|---|---|---|---|---|---|\n"
        f"| {seeds:,} | {failed} | {cpu:,.0f} | {steps:,} | {rows:,} | {stops:,} |\n"
    )


def sweep(seeds: Iterable[int], until: float = float("inf"), *, proven: bool = False) -> tuple[Entry, Counter[str]]:
    """Runs seeds one after the other, the last of them when `time.monotonic` has come to `until`, and prints a line for each
    failure. Returns what the ledger keeps, and what stopped jobs how often.
    """
    ran: list[int] = []
    failed = steps = rows = 0
    stops = Counter[str]()
    began = time.process_time()
    for seed in seeds:
        result = History(seed, proven=proven).run()
        ran.append(seed)
        steps, rows, stops = steps + result.steps, rows + result.rows, stops + result.halts
        if result.failures:
            failed += 1
            print(f"seed {seed}: {result.failures[0]}", flush=True)
        if time.monotonic() >= until:
            break
    return {
        "first": ran[0], "seeds": len(ran), "failed": failed, "cpu_seconds": round(time.process_time() - began, 1),
        "steps": steps, "rows": rows, "stops": stops.total(),
    }, stops  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lake.model", description=__doc__)
    parser.add_argument("--seeds", default="0-999", help="a range, both ends included: A-B")
    parser.add_argument("--seed", type=int, help="one seed: says what happens")
    parser.add_argument("--minutes", type=float, help="goes on where the ledger ends, for so long")
    parser.add_argument("--proven", action="store_true", help="asks for the proof in each history, not in each tenth")
    parser.add_argument("--ledger", type=Path, default=LEDGER, metavar="FILE")
    options = parser.parse_args()
    if options.seed is not None:
        result = History(options.seed, proven=True).run()
        print(*result.trace, *(f"FAILED {failure}" for failure in result.failures), sep="\n")
        return 1 if result.failures else 0
    if options.minutes is None:
        first, _, last = options.seeds.partition("-")
        ran, stops = sweep(range(int(first), int(last) + 1), proven=options.proven)
    else:
        end = max((each["first"] + each["seeds"] for each in ledger.entries(options.ledger)), default=0)
        ran, stops = sweep(itertools.count(end), time.monotonic() + 60 * options.minutes, proven=options.proven)
        ledger.add(options.ledger, {**ran, "product": ledger.product("libs", "spark_jobs")}, table)
    print(
        f"{ran['seeds']} seeds, {ran['failed']} failures, {ran['cpu_seconds']} CPU-s, {ran['steps']:,} steps,"
        f" {ran['rows']:,} rows, {ran['stops']} stops"
    )
    for reason, number in stops.most_common(20):
        print(f"  {number} x {reason} …")
    return 1 if ran["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
