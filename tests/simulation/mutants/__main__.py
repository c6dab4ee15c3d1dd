"""``python -m tests.simulation.mutants [NAME …]``: says which seed finds each mutant first. Status 1: one is not found."""

from __future__ import annotations

import sys

from tests.simulation.__main__ import run
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.mutants.mutation import mutated

MOST = 500
"""Seeds within which a mutant must be found."""


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
    sys.exit(None in [hunt(mutant) for mutant in chosen])
