"""Real faults: ``python -m tests.faults --seed 1 --minutes 10``. See docs/how-we-test.md.

Each round is printed as it ends; the last line counts, and the status is 1 if any promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.faults.rounds import FAULTS, round_of
from tests.faults.stack import Stack


async def rounds(asked: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Runs rounds until the time is over."""
    found: list[dict[str, Any]] = []
    end = time.monotonic() + 60 * asked.minutes
    async with AsyncExitStack() as ending:
        stack = await Stack.start(folder, ending, asked.brokers)
        while not found or time.monotonic() < end:
            found.append(await round_of(stack, f"{asked.seed}-{len(found)}", 15, asked.together))
            print(json.dumps(found[-1]), flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Real faults, and what they break.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--brokers", type=int, default=3, choices=(1, 3))
    parser.add_argument("--together", nargs="+", default=(), choices=FAULTS, metavar="FAULT", help="at once, each time")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="headrace-faults-"))
    found = asyncio.run(rounds(asked, folder))
    broken = sum(bool(each["problems"]) for each in found)
    events, frames = (sum(each[name] for each in found) for name in ("events", "frames"))
    print(f"{len(found)} rounds, {broken} with a broken promise, {events} events of {frames} frames")
    if broken:
        print(f"the logs are in {folder}")
    else:
        shutil.rmtree(folder)
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
