"""``python -m tests.lake.model``: runs histories of the landing job, or replays one."""

from __future__ import annotations

import argparse
import sys

from tests.lake.model.history import History


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lake.model", description=__doc__)
    parser.add_argument("--seeds", default="0-999", help="a range, both ends included: A-B")
    parser.add_argument("--seed", type=int, help="one seed: says what happens")
    options = parser.parse_args()
    if options.seed is not None:
        history = History(options.seed, proven=True)
        failures = history.run()
        print(*history.trace, *(f"FAILED {failure}" for failure in failures), sep="\n")
        return int(bool(failures))
    first, _, last = options.seeds.partition("-")
    failed = 0
    for seed in range(int(first), int(last) + 1):
        if failures := History(seed).run():
            failed += 1
            print(f"seed {seed}: {failures[0]}", flush=True)
    print(f"{failed} failures")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
