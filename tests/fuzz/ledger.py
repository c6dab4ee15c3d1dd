"""The ledger of what was fuzzed once, in pieces, each of other inputs: ``benchmarks/results/fuzz.jsonl`` and its table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests import ledger
from tests.fuzz.subjects import PROTOCOLS
from tests.ledger import RESULTS, Entry

LEDGER: Final = RESULTS / "fuzz.jsonl"


def end(path: Path, protocol: str, seed: int, *, grow: bool) -> int:
    """Returns the number of the first input that was not run yet."""
    ran = [each for each in ledger.entries(path) if (each["protocol"], each["seed"]) == (protocol, seed)]
    return max((each["first"] + each["inputs"] for each in ran if each["grow"] == grow), default=0)


def add(path: Path, protocol: str, seed: int, numbers: range, failed: int, spent: float, *, grow: bool) -> None:
    """Adds a piece."""
    entry: Entry = {"protocol": protocol, "grow": grow, "seed": seed, "first": numbers.start, "inputs": len(numbers)}
    entry |= {"failed": failed, "cpu_seconds": round(spent, 1), "product": ledger.product("libs", "services")}
    ledger.add(path, entry, table)


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
