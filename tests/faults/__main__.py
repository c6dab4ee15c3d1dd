"""Real faults: ``python -m tests.faults --seed 1 --minutes 10``. See docs/how-we-test.md.

Each round is printed as it ends, and added to the ledger; the last line counts, and the status is 1 if any promise was broken.
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
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from tests import ledger
from tests.faults.rounds import FAULTS, round_of
from tests.faults.stack import Stack
from tests.ledger import RESULTS, Entry

LEDGER: Final = RESULTS / "faults.jsonl"


async def rounds(asked: argparse.Namespace, folder: Path) -> list[Entry]:
    """As many as fit."""
    found: list[Entry] = []
    product = ledger.product("libs", "services")
    end = time.monotonic() + 60 * asked.minutes
    async with AsyncExitStack() as ending:
        stack = await Stack.start(folder, random.Random(asked.seed), ending, asked.brokers)
        while not found or time.monotonic() < end:
            found.append(
                {
                    "product": product,
                    **await round_of(stack, f"{asked.seed}-{len(found)}", asked.seconds, asked.together),
                }
            )
            print(json.dumps(found[-1]), flush=True)
            ledger.add(asked.ledger, found[-1], table)
    return found


def table(entries: Sequence[Entry]) -> str:
    """Returns what happened in all rounds so far."""
    lines = [
        "All rounds so far, each with clients of all five receivers. Written by `tests.faults`, a line for each round to",
        "`faults.jsonl`.",
        "",
        "| brokers | rounds | with a broken promise | frames | sent again | events | until all was acknowledged, at most"
        " | numbers of a Logjam device | of these lost |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for brokers in sorted({each["brokers"] for each in entries}):
        of = [each for each in entries if each["brokers"] == brokers]
        broken = sum(bool(each["problems"]) for each in of)
        sums = ("frames", "sent_again", "events", "numbers", "numbers_lost")
        frames, again, events, *device = (f"{sum(each.get(name, 0) for each in of):,}" for name in sums)
        longest = max(each["seconds_until_all_was_acknowledged"] for each in of)
        lines.append(
            f"| {brokers} | {len(of)} | {broken} | {frames} | {again} | {events} | {longest:g} s | {' | '.join(device)} |"
        )
    happened = Counter(name for each in entries for name in each["faults"])
    answers = sum((Counter(each["answers"]) for each in entries), Counter[str]())
    lines += ["", "| fault | times |", "|---|---|", *(f"| {name} | {happened[name]} |" for name in FAULTS)]
    lines += [
        "",
        "| answers of Kafka | times |",
        "|---|---|",
        *(f"| {name} | {answers[name]:,} |" for name in sorted(answers)),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Real faults, and what they break.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seconds", type=float, default=15, help="how long a round's faults last")
    parser.add_argument("--brokers", type=int, default=3, choices=(1, 3))
    parser.add_argument("--together", nargs="+", default=(), choices=FAULTS, metavar="FAULT", help="at once, each time")
    parser.add_argument("--ledger", type=Path, default=LEDGER, metavar="FILE")
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
