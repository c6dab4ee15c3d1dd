"""``python -m tests.lake.model``: runs histories of the landing job, or replays one."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.lake.model.history import History


def sweep(seeds: Sequence[int], *, proven: bool) -> int:
    """Runs seeds one after the other, prints a line for each failure and what stopped jobs. Returns how many failed."""
    failed = steps = rows = 0
    stops = Counter[str]()
    began = time.process_time()
    for seed in seeds:
        result = History(seed, proven=proven).run()
        steps, rows, stops = steps + result.steps, rows + result.rows, stops + result.halts
        if result.failures:
            failed += 1
            print(f"seed {seed}: {result.failures[0]}", flush=True)
    spent = time.process_time() - began
    print(
        f"{len(seeds)} seeds, {failed} failures, {spent:.1f} CPU-s, {steps:,} steps, {rows:,} rows, {stops.total()} stops"
    )
    for reason, number in stops.most_common(20):
        print(f"  {number} x {reason} …")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lake.model", description=__doc__)
    parser.add_argument("--seeds", default="0-999", help="a range, both ends included: A-B")
    parser.add_argument("--seed", type=int, help="one seed: says what happens")
    parser.add_argument("--proven", action="store_true", help="asks for the proof in each history, not in each tenth")
    options = parser.parse_args()
    if options.seed is not None:
        result = History(options.seed, proven=True).run()
        print(*result.trace, *(f"FAILED {failure}" for failure in result.failures), sep="\n")
        return 1 if result.failures else 0
    first, _, last = options.seeds.partition("-")
    return int(sweep(range(int(first), int(last) + 1), proven=options.proven) > 0)


if __name__ == "__main__":
    sys.exit(main())
