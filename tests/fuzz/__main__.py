"""Fuzzes a protocol: ``python -m tests.fuzz --protocol forward --inputs 1000 --seed 1``.

The last line says how many inputs there were, how many failed, and the CPU-seconds; the status is 1 if any failed. With
``--number`` it runs one input again, makes it small and prints it. With ``--grow`` inputs grow instead: see `growth`.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time

from tests.fuzz import growth
from tests.fuzz.running import failure_of, failures, small
from tests.fuzz.subjects import PROTOCOLS


def fuzzed(protocol: str, seed: int, numbers: range) -> int:
    """Runs inputs and prints those that fail, the first three of them made small. Returns how many do."""
    failed = 0
    for number in failures(protocol, seed, numbers):
        failed += 1
        if failed <= 3:
            name = f"{seed}-{number}"
            failure = failure_of(protocol, name)
            assert failure is not None, "it fails once and not again"
            print(f"input {number}: {small(protocol, name, failure)}", flush=True)
        else:
            print(f"input {number}", flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzzes a protocol.")
    parser.add_argument("--protocol", choices=PROTOCOLS, required=True)
    parser.add_argument("--inputs", type=int, default=1000, metavar="N", help="how many")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first input")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, metavar="N", help="runs this input again, and makes it small")
    parser.add_argument("--grow", action="store_true", help="measures processor time and memory of inputs that grow")
    asked = parser.parse_args()
    numbers = range(asked.first, asked.first + asked.inputs)
    if asked.number is not None:
        numbers = range(asked.number, asked.number + 1)
    run = growth.run if asked.grow else fuzzed
    began = time.process_time()
    failed = run(asked.protocol, asked.seed, numbers)
    spent = time.process_time() - began
    each = len(numbers) / spent if spent else 0
    print(f"{asked.protocol}: {len(numbers)} inputs, {failed} failures, {spent:.1f} CPU-s, {each:.0f} inputs per CPU-s")
    return int(failed > 0)


if __name__ == "__main__":
    gc.freeze()  # what is there already need not be looked through again and again
    sys.exit(main())
