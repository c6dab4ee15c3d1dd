"""``python -m tests.lake.model``: runs histories of the landing job, or replays one."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.lake.model.history import History


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lake.model", description=__doc__)
    parser.add_argument("--seeds", default="0-999", help="a range, both ends included: A-B")
    parser.add_argument("--seed", type=int, help="one seed: says what happens")
    options = parser.parse_args()
    if options.seed is not None:
        result = History(options.seed).run()
        print(*result.trace, *(f"FAILED {failure}" for failure in result.failures), sep="\n")
        return 1 if result.failures else 0
    first, _, last = options.seeds.partition("-")
    failed, steps, rows, halts = 0, 0, 0, Counter[str]()
    began = time.process_time()
    for seed in range(int(first), int(last) + 1):
        result = History(seed).run()
        steps, rows, halts = steps + result.steps, rows + result.rows, halts + result.halts
        if result.failures:
            failed += 1
            print(f"seed {seed}: {result.failures[0]}", flush=True)
    count, cpu = int(last) - int(first) + 1, time.process_time() - began
    print(f"{count} seeds, {failed} failures, {cpu:.1f} CPU-s, {steps:,} steps, {rows:,} rows, {halts.total()} stops")
    for reason, number in halts.most_common(20):
        print(f"  {number} x {reason} …")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
