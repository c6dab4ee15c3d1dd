"""``python -m tests.simulation.mutants [NAME …]``: finds the first seed that tells each mutant from the product, and notes it.

Status 1: one is not found.
"""

from __future__ import annotations

import json
import sys

from tests.simulation.__main__ import run
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.mutants.mutant import FILE, SEEDS
from tests.simulation.mutants.mutation import mutated

MOST = 500
"""Seeds within which a mutant is hunted. The quick tier runs 200, within which all but four are found."""


def finds(mutant: Mutant, seed: int) -> list[str]:
    """What this seed has against the mutant."""
    with mutated(mutant):
        return run(seed, mutant.protocol).failures


def hunt(mutant: Mutant) -> int | None:
    """The first seed that finds it."""
    with mutated(mutant):
        for seed in range(MOST):
            if failures := run(seed, mutant.protocol).failures:
                print(f"{mutant.name}: seed {seed} of {mutant.protocol}: {failures[0]}", flush=True)
                return seed
    print(f"{mutant.name}: not found in {MOST} seeds of {mutant.protocol}", flush=True)
    return None


if __name__ == "__main__":
    chosen = [mutant for mutant in MUTANTS if not sys.argv[1:] or mutant.name in sys.argv[1:]]
    found = {mutant.name: hunt(mutant) for mutant in chosen}
    known = {**SEEDS, **{name: seed for name, seed in found.items() if seed is not None}}
    FILE.write_text(json.dumps({m.name: known[m.name] for m in MUTANTS if m.name in known}, indent=0) + "\n")
    sys.exit(None in found.values())
