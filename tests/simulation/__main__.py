"""``python -m tests.simulation``: runs seeds, or replays one and says what happened."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from tests.native import CORES, using
from tests.simulation.protocols import PROTOCOLS
from tests.simulation.scenario import Scenario, draw
from tests.simulation.world import Result, World

MOST_SHRINKS = 300
LINES = 400


def run(seed: int, protocol: str, *, traced: bool = False) -> Result:
    """Runs a seed."""
    return World(draw(seed, protocol), traced=traced).run()


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


def sweep(seeds: range, protocol: str) -> int:
    """Runs a range of seeds and prints one line about it, and one for each failure. Returns the exit status."""
    failed: list[int] = []
    virtual = cpu = slowest = 0.0
    acknowledgements, began = 0, time.process_time()
    for seed in seeds:
        result = run(seed, protocol)
        virtual += result.seconds
        slowest = max(slowest, result.recovery)
        acknowledgements += result.acknowledgements
        if result.failures:
            failed.append(seed)
            print(f"{protocol} seed {seed}: {result.failures[0]}", flush=True)
    cpu = time.process_time() - began
    print(
        f"{protocol}: {len(seeds)} seeds, {len(failed)} failures, {cpu:.1f} CPU-s, {virtual / 3600:.1f} virtual hours,"
        f" {acknowledgements:,} acknowledgements, slowest recovery {slowest:.0f} s"
    )
    return 1 if failed else 0


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
    first, _, last = (options.seeds if options.seed is None else f"{options.seed}-{options.seed}").partition("-")
    return max(sweep(range(int(first), int(last) + 1), protocol) for protocol in protocols)


if __name__ == "__main__":
    sys.exit(main())
