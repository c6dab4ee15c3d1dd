"""Fuzzes a protocol: ``python -m tests.fuzz --protocol forward --inputs 1000 --seed 1``.

The last line says how many inputs there were, how many failed, and the CPU-seconds; the status is 1 if any failed. With
``--number`` it runs one input again, makes it small and prints it. With ``--grow`` inputs grow instead: see `growth`. With
``--minutes`` it goes on where the ledger of this seed ends, and adds what it has run.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from pathlib import Path

from tests.fuzz import growth, ledger
from tests.fuzz.running import failure_of, failures, small
from tests.fuzz.subjects import PROTOCOLS


def fuzzed(protocol: str, seed: int, numbers: range) -> int:
    """Runs inputs and prints those that fail, the first three of them made small. Returns how many do."""
    gc.freeze()  # what is there already need not be looked through again and again
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
    parser.add_argument("--inputs", type=int, default=1000, metavar="N", help="how many; with --minutes: at a time")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first input")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, metavar="N", help="runs this input again, and makes it small")
    parser.add_argument("--grow", action="store_true", help="measures processor time and memory of inputs that grow")
    parser.add_argument("--minutes", type=float, help="goes on where the ledger ends, for so long")
    parser.add_argument("--ledger", type=Path, default=ledger.LEDGER, metavar="FILE")
    asked = parser.parse_args()
    first = (
        asked.first if asked.minutes is None else ledger.end(asked.ledger, asked.protocol, asked.seed, grow=asked.grow)
    )
    numbers = range(first, first + asked.inputs)
    if asked.number is not None:
        numbers = range(asked.number, asked.number + 1)
    run = growth.run if asked.grow else fuzzed
    began, until = time.process_time(), time.monotonic() + 60 * (asked.minutes or 0)
    failed = run(asked.protocol, asked.seed, numbers)
    while time.monotonic() < until:
        further = range(numbers.stop, numbers.stop + asked.inputs)
        numbers = range(first, further.stop)
        failed += run(asked.protocol, asked.seed, further)
    spent = time.process_time() - began
    if asked.minutes is not None:
        ledger.add(asked.ledger, asked.protocol, asked.seed, numbers, failed, spent, grow=asked.grow)
    each = len(numbers) / spent if spent else 0
    print(f"{asked.protocol}: {len(numbers)} inputs, {failed} failures, {spent:.1f} CPU-s, {each:.0f} inputs per CPU-s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
