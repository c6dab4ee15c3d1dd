"""Says which mutant is active, and notes which test comes by each. A copy of it lies beside the mutated sources."""

from __future__ import annotations

import contextlib
import os

ACTIVE = int(os.environ.get("MUTANT", "0"))
HITS = os.environ.get("MUTANT_HITS")  # a file; beside it, `….now` names the test that runs
seen: set[int] = set()  # in this process, since the test began; a process that a test has started forgets none


def mutant(number: int) -> bool:
    """Returns whether this mutant is active."""
    if number not in seen:
        seen.add(number)
        if HITS:
            with contextlib.suppress(OSError), open(f"{HITS}.now") as now, open(HITS, "a") as hits:
                hits.write(f"{number} {now.read()}\n")
    return number == ACTIVE
