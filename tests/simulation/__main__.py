"""``python -m tests.simulation``: runs seeds, or replays one and says what happened.

With ``--minutes`` it goes on where the ledger of each protocol ends, and adds what it has run.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tests import ledger
from tests.ledger import RESULTS, Entry
from tests.native import CORES, using
from tests.simulation.protocols import PROTOCOLS
from tests.simulation.scenario import Scenario
from tests.simulation.shapes import draw
from tests.simulation.world import Result, World

LEDGER = RESULTS / "simulation.jsonl"
"""Seeds that were run once, in ranges; beside it is the table of all."""

MOST_SHRINKS = 300
LINES = 400
FULLY = 500
"""Seeds after which all that they have left is collected, and not what is young alone."""


def run(seed: int, protocol: str, *, traced: bool = False) -> Result:
    """Runs a seed. What it leaves is gone when it returns."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return World(draw(seed, protocol), traced=traced).run()
    finally:
        gc.collect(0)  # once, and what was there before is not looked through
        if collects:
            gc.enable()


def shrink(scenario: Scenario, fails: Callable[[Scenario], bool]) -> Scenario:
    """A scenario with less in it that still fails."""
    tries, again = 0, True
    while again and tries < MOST_SHRINKS:
        again = False
        for smaller in scenario.smaller():
            tries += 1
            if fails(smaller):
                scenario, again = smaller, True
                break
    return scenario


def _kind(failure: str) -> str:
    """A failure without names and numbers: what must stay the same while its scenario shrinks."""
    return " ".join(word for word in failure.split() if word.isalpha())[:60]


def replay(seed: int, protocol: str) -> int:
    """Replays a seed, shrinks it if it fails, and prints the story. Returns the exit status."""
    result = run(seed, protocol, traced=True)
    if result.failures:
        kind = _kind(result.failures[0])
        print(f"seed {seed} of {protocol}: {result.failures[0]}; shrinking")

        def fails(scenario: Scenario) -> bool:
            return any(_kind(failure) == kind for failure in World(scenario).run().failures)

        small = shrink(result.scenario, fails)
        result = World(small, traced=True).run()
    print(f"seed {seed} of {protocol}: {result.scenario.limits or 'usual limits'}, {result.scenario.kafka}")
    for plan in result.scenario.clients:
        print(f"  client {plan}")
    for fault in result.scenario.faults:
        print(f"  fault {fault}")
    for line in result.trace[-LINES:]:
        print(line)
    for failure in result.failures:
        print(f"FAILED {failure}")
    return 1 if result.failures else 0


def sweep(seeds: Iterable[int], protocol: str, until: float = float("inf")) -> Entry:
    """Runs seeds one after the other, the last of them when `time.monotonic` has come to `until`, and prints one line about them,
    and one for each failure. Returns what the ledger keeps.
    """
    ran: list[int] = []
    failed = acknowledgements = 0
    virtual = slowest = 0.0
    began = time.process_time()
    gc.collect()
    gc.freeze()
    gc.disable()
    for seed in seeds:
        result = run(seed, protocol)
        ran.append(seed)
        virtual += result.seconds
        slowest = max(slowest, result.recovery)
        acknowledgements += result.acknowledgements
        if result.failures:
            failed += 1
            print(f"{protocol} seed {seed}: {result.failures[0]}", flush=True)
        if len(ran) % FULLY == 0:
            gc.collect()
        if time.monotonic() >= until:
            break
    gc.unfreeze()
    gc.enable()
    cpu, hours = time.process_time() - began, virtual / 3600
    print(
        f"{protocol}: {len(ran)} seeds, {failed} failures, {cpu:.1f} CPU-s, {hours:.1f} virtual hours,"
        f" {acknowledgements:,} acknowledgements, slowest recovery {slowest:.0f} s",
        flush=True,
    )
    return {
        "protocol": protocol, "first": ran[0], "seeds": len(ran), "failed": failed, "cpu_seconds": round(cpu, 1),
        "virtual_hours": round(hours, 2), "acknowledgements": acknowledgements,
    }  # fmt: skip


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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--protocol", choices=[*PROTOCOLS, "all"], default="all")
    parser.add_argument("--seeds", default="0-199", help="a range, both ends included: A-B")
    parser.add_argument("--seed", type=int, help="one seed")
    parser.add_argument("--trace", action="store_true", help="with --seed: says what happens, and shrinks what fails")
    parser.add_argument(
        "--core", choices=CORES, default=CORES[0], help="which of the two encodes Forward's plain events"
    )
    parser.add_argument("--minutes", type=float, help="goes on where the ledger ends, for so long with each protocol")
    parser.add_argument("--ledger", type=Path, default=LEDGER, metavar="FILE")
    options = parser.parse_args()
    with using(options.core):
        return chosen(options)


def chosen(options: argparse.Namespace) -> int:
    """Runs what the options say. Returns the exit status."""
    protocols = list(PROTOCOLS) if options.protocol == "all" else [options.protocol]
    if options.seed is not None and options.trace:
        return max(replay(options.seed, protocol) for protocol in protocols)
    failed = 0
    if options.minutes is not None:
        for protocol in protocols:
            first = ledger.end(options.ledger, "seeds", protocol=protocol, core=options.core)
            ran = sweep(itertools.count(first), protocol, time.monotonic() + 60 * options.minutes)
            product = ledger.product("libs", "services")
            ledger.add(options.ledger, {**ran, "core": options.core, "product": product}, table)
            failed += ran["failed"]
        return int(failed > 0)
    first_seed, _, last = (options.seeds if options.seed is None else f"{options.seed}-{options.seed}").partition("-")
    for protocol in protocols:
        failed += sweep(range(int(first_seed), int(last) + 1), protocol)["failed"]
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
