"""Real faults: ``python -m tests.faults --seed 1 --minutes 10``. See tests/README.md.

Each round is printed as it ends; the last line counts, and the status is 1 if any promise was broken. `--results` writes all
rounds as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.faults.rounds import Stack, round_of

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "faults.json"


async def rounds(seed: int, minutes: float, seconds: float, folder: Path) -> list[dict[str, Any]]:
    """As many as fit."""
    found: list[dict[str, Any]] = []
    end = time.monotonic() + 60 * minutes
    async with AsyncExitStack() as ending:
        stack = await Stack.start(folder, random.Random(seed), ending)
        while not found or time.monotonic() < end:
            found.append(await round_of(stack, f"{seed}-{len(found)}", seconds))
            print(json.dumps(found[-1]), flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Real faults, and what they break.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seconds", type=float, default=15, help="how long a round's faults last")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="headrace-faults-"))
    found = asyncio.run(rounds(asked.seed, asked.minutes, asked.seconds, folder))
    broken = sum(bool(each["problems"]) for each in found)
    total = {name: sum(each[name] for each in found) for name in ("frames", "events", "sent_again", "stored")}
    asked.results.write_text(json.dumps({"seed": asked.seed, **total, "rounds": found}, indent=1) + "\n")
    print(f"{len(found)} rounds, {broken} with a broken promise, {total['events']} events of {total['frames']} frames")
    if broken:
        print(f"the logs are in {folder}")
    else:
        shutil.rmtree(folder)
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
