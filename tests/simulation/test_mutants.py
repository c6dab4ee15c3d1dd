"""Each mutant of the product is found by the simulation."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, Mutant, finds, hunt


def found(mutant: Mutant) -> int | None:
    """By the seed that found it first when it was last hunted; only where that means something else by now, by any."""
    return mutant.seed if finds(mutant, mutant.seed) else hunt(mutant)


@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found(name: str) -> None:
    assert found(MUTANTS[name]) is not None
