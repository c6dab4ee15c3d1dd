"""``python -m tests.simulation``: runs seeds, or replays one and says what happened."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Sequence

from tests.native import CORES, using
from tests.simulation.protocols import PROTOCOLS
from tests.simulation.shapes import draw
from tests.simulation.world import Result, World

LINES = 400
FULLY = 500
"""Seeds after which all that they have left is collected, and not what is young alone."""


def run(seed: int, protocol: str, *, traced: bool = False) -> Result:
    """Runs a seed. What it leaves is gone when it returns."""
    collects = gc.isenabled()
    gc.disable()  # it took a seventh of the time, and would end what is dead in somebody's midst
    try:
        return World(draw(seed, protocol), traced=traced).run()
    finally:
        gc.collect(0)  # once, and what was there before is not looked through
        if collects:
            gc.enable()


def replay(seed: int, protocol: str) -> int:
    """Replays a seed, and prints its story. Returns the exit status."""
    result = run(seed, protocol, traced=True)
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
    parser.add_argument("--trace", action="store_true", help="with --seed: says what happens")
    parser.add_argument(
        "--core", choices=CORES, default=CORES[0], help="which of the two encodes Forward's plain events"
    )
    options = parser.parse_args()
    protocols = list(PROTOCOLS) if options.protocol == "all" else [options.protocol]
    first, _, last = (options.seeds if options.seed is None else f"{options.seed}-{options.seed}").partition("-")
    with using(options.core):
        if options.seed is not None and options.trace:
            return max(replay(options.seed, protocol) for protocol in protocols)
        return int(sum(sweep(range(int(first), int(last) + 1), protocol) for protocol in protocols) > 0)


if __name__ == "__main__":
    sys.exit(main())
