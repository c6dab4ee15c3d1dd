"""Each mutant of the product is found by the simulation."""

from __future__ import annotations

import pytest

from tests.simulation.__main__ import run
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.mutants.__main__ import finds, hunt

NAMED = {mutant.name: mutant for mutant in MUTANTS}


def found(mutant: Mutant) -> int | None:
    """By the seed that found it first when it was last hunted; only where that means something else by now, by any."""
    return mutant.seed if finds(mutant, mutant.seed) else hunt(mutant)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMED)
def test_a_mutant_is_found(name: str) -> None:
    assert found(NAMED[name]) is not None


def test_a_mutant_is_gone_after_its_hunt() -> None:
    seed = found(MUTANTS[1])
    assert seed is not None
    assert not run(seed, MUTANTS[1].protocol).failures
