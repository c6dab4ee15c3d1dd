"""Fuzzes a protocol: ``python -m tests.fuzz --protocol forward --inputs 1000 --seed 1``.

The last line says how many inputs there were, how many failed, and the CPU-seconds; the status is 1 if any failed. `--first` and
`--inputs 1` run one again.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time

from tests.fuzz.judging import failures
from tests.fuzz.subjects import PROTOCOLS

SHOWN = 3
"""Failing inputs that are shown whole."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzzes a protocol.")
    parser.add_argument("--protocol", choices=PROTOCOLS, required=True)
    parser.add_argument("--inputs", type=int, default=1000, metavar="N", help="how many")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first input")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    began = time.process_time()
    failed = 0
    for number, failure in failures(asked.protocol, asked.seed, range(asked.first, asked.first + asked.inputs)):
        failed += 1
        print(f"input {number}: {failure}" if failed <= SHOWN else f"input {number}", flush=True)
    spent = time.process_time() - began
    print(f"{asked.protocol}: {asked.inputs} inputs, {failed} failures, {spent:.1f} CPU-s")
    return int(failed > 0)


if __name__ == "__main__":
    gc.freeze()  # what is there already need not be looked through again and again
    sys.exit(main())
