"""``python -m tests.simulation``: runs seeds, or replays one and says what happened."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Sequence

from tests.native import CORES, using
from tests.simulation.protocols import PROTOCOLS
from tests.simulation.scenario import Scenario
from tests.simulation.shapes import draw
from tests.simulation.world import Result, World

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


def sweep(seeds: Sequence[int], protocol: str) -> int:
    """Runs seeds one after the other, and prints a line for each failure. Returns how many failed."""
    failed = acknowledgements = 0
    virtual = slowest = 0.0
    began = time.process_time()
    gc.collect()
    gc.freeze()
    gc.disable()
    for number, seed in enumerate(seeds, 1):
        result = run(seed, protocol)
        virtual += result.seconds
        slowest = max(slowest, result.recovery)
        acknowledgements += result.acknowledgements
        if result.failures:
            failed += 1
            print(f"{protocol} seed {seed}: {result.failures[0]}", flush=True)
        if number % FULLY == 0:
            gc.collect()
    gc.unfreeze()
    gc.enable()
    cpu, hours = time.process_time() - began, virtual / 3600
    print(
        f"{protocol}: {len(seeds)} seeds, {failed} failures, {cpu:.1f} CPU-s, {hours:.1f} virtual hours,"
        f" {acknowledgements:,} acknowledgements, slowest recovery {slowest:.0f} s",
        flush=True,
    )
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--protocol", choices=[*PROTOCOLS, "all"], default="all")
    parser.add_argument("--seeds", default="0-199", help="a range, both ends included: A-B")
    parser.add_argument("--seed", type=int, help="one seed")
    parser.add_argument("--trace", action="store_true", help="with --seed: says what happens, and shrinks what fails")
    parser.add_argument(
        "--core", choices=CORES, default=CORES[0], help="which of the two encodes Forward's plain events"
    )
    options = parser.parse_args()
    with using(options.core):
        return chosen(options)


def chosen(options: argparse.Namespace) -> int:
    """Runs what the options say. Returns the exit status."""
    protocols = list(PROTOCOLS) if options.protocol == "all" else [options.protocol]
    if options.seed is not None and options.trace:
        return max(replay(options.seed, protocol) for protocol in protocols)
    first_seed, _, last = (options.seeds if options.seed is None else f"{options.seed}-{options.seed}").partition("-")
    seeds = range(int(first_seed), int(last) + 1)
    return int(sum(sweep(seeds, protocol) for protocol in protocols) > 0)


if __name__ == "__main__":
    sys.exit(main())
