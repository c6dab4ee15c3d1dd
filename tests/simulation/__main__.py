"""``python -m tests.simulation``: runs seeds, or one, and says what happened in it."""

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
    result, scenario = run(seed, protocol, traced=True), draw(seed, protocol)
    print(f"seed {seed} of {protocol}: {scenario.limits or 'usual limits'}, {scenario.kafka}")
    for each in (*scenario.clients, *scenario.faults, *result.trace[-LINES:]):
        print(each)
    for failure in result.failures:
        print(f"FAILED {failure}")
    return int(bool(result.failures))


def sweep(seeds: Sequence[int], protocol: str) -> int:
    """Runs seeds one after the other, and prints a line for each failure. Returns how many failed."""
    failed = acknowledgements = 0
    began = time.process_time()
    for seed in seeds:
        result = run(seed, protocol)
        acknowledgements += result.acknowledgements
        if result.failures:
            failed += 1
            print(f"{protocol} seed {seed}: {result.failures[0]}", flush=True)
    cpu = time.process_time() - began
    print(
        f"{protocol}: {len(seeds)} seeds, {failed} failures, {cpu:.1f} CPU-s, {acknowledgements:,} acknowledgements",
        flush=True,
    )
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--protocol", choices=[*PROTOCOLS, "all"], default="all")
    parser.add_argument("--seeds", default="0-199", help="a range, both ends included: A-B")
    parser.add_argument("--seed", type=int, help="one seed, whose story is told")
    parser.add_argument("--core", choices=CORES, default=CORES[0], help="which core encodes plain events")
    options = parser.parse_args()
    protocols = list(PROTOCOLS) if options.protocol == "all" else [options.protocol]
    first, _, last = options.seeds.partition("-")
    with using(options.core):
        if options.seed is not None:
            return max(replay(options.seed, protocol) for protocol in protocols)
        return int(sum(sweep(range(int(first), int(last) + 1), protocol) for protocol in protocols) > 0)


if __name__ == "__main__":
    sys.exit(main())
