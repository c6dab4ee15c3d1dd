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
from collections.abc import Sequence
from pathlib import Path

from tests import ledger
from tests.fuzz import growth
from tests.fuzz.running import failure_of, failures, small
from tests.fuzz.subjects import PROTOCOLS
from tests.ledger import RESULTS, Entry

LEDGER = RESULTS / "fuzz.jsonl"
"""What was fuzzed once, in pieces, each of other inputs; beside it is the table of all."""


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


def table(entries: Sequence[Entry]) -> str:
    """Returns what was run so far, in all."""
    lines = [
        "Inputs whole and in pieces, and inputs that grow at 1, 2, 4 and 8 times a size. Written by `tests.fuzz --minutes`.",
        "",
        "| protocol | inputs | failures | inputs a CPU-second | growing inputs | failures |",
        "|---|---|---|---|---|---|",
    ]
    for protocol in PROTOCOLS:
        parts = [[e for e in entries if e["protocol"] == protocol and e["grow"] is grow] for grow in (False, True)]
        (inputs, failed), grown = ((sum(e["inputs"] for e in part), sum(e["failed"] for e in part)) for part in parts)
        rate = inputs / (sum(e["cpu_seconds"] for e in parts[0]) or 1)
        lines.append(f"| {protocol} | {inputs:,} | {failed} | {rate:,.0f} | {grown[0]:,} | {grown[1]} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzzes a protocol.")
    parser.add_argument("--protocol", choices=PROTOCOLS, required=True)
    parser.add_argument("--inputs", type=int, default=1000, metavar="N", help="how many; with --minutes: at a time")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first input")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, metavar="N", help="runs this input again, and makes it small")
    parser.add_argument("--grow", action="store_true", help="measures processor time and memory of inputs that grow")
    parser.add_argument("--minutes", type=float, help="goes on where the ledger ends, for so long")
    parser.add_argument("--ledger", type=Path, default=LEDGER, metavar="FILE")
    asked = parser.parse_args()
    which = {"protocol": asked.protocol, "grow": asked.grow, "seed": asked.seed}
    first = asked.first if asked.minutes is None else ledger.end(asked.ledger, "inputs", **which)
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
        ran = {
            **which,
            "first": numbers.start,
            "inputs": len(numbers),
            "failed": failed,
            "cpu_seconds": round(spent, 1),
        }
        ledger.add(asked.ledger, {**ran, "product": ledger.product("libs", "services")}, table)
    each = len(numbers) / spent if spent else 0
    print(f"{asked.protocol}: {len(numbers)} inputs, {failed} failures, {spent:.1f} CPU-s, {each:.0f} inputs per CPU-s")
    return int(failed > 0)


if __name__ == "__main__":
    gc.freeze()  # what is there already need not be looked through again and again
    sys.exit(main())
