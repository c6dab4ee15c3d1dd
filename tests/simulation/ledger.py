"""The ledger of seeds that were run once, in ranges: ``benchmarks/results/simulation.jsonl`` and its table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests import ledger
from tests.ledger import RESULTS, Entry
from tests.native import CORES
from tests.simulation.protocols import PROTOCOLS

LEDGER: Final = RESULTS / "simulation.jsonl"


def end(path: Path, protocol: str, core: str) -> int:
    """Returns the first seed that was not run yet."""
    ran = [each for each in ledger.entries(path) if (each["protocol"], each["core"]) == (protocol, core)]
    return max((each["first"] + each["seeds"] for each in ran), default=0)


def add(path: Path, core: str, ran: Entry) -> None:
    """Adds a range."""
    ledger.add(path, {**ran, "core": core, "product": ledger.product("libs", "services")}, table)


def table(entries: Sequence[Entry]) -> str:
    """Returns what was run so far, in all."""
    lines = [
        "Seeds of the simulation, each run once. Written by `tests.simulation --minutes`; `simulation.jsonl` has the ranges.",
        "",
        "| protocol | core | seeds | failures | CPU-s | virtual hours | acknowledgements |",
        "|---|---|---|---|---|---|---|",
    ]
    for protocol in PROTOCOLS:
        for core in CORES:
            ran = [each for each in entries if (each["protocol"], each["core"]) == (protocol, core)]
            if ran:
                seeds, failed, cpu, hours, heard = (
                    sum(each[name] for each in ran)
                    for name in ("seeds", "failed", "cpu_seconds", "virtual_hours", "acknowledgements")
                )
                lines.append(f"| {protocol} | {core} | {seeds:,} | {failed} | {cpu:,.0f} | {hours:,.1f} | {heard:,} |")
    return "\n".join(lines) + "\n"
