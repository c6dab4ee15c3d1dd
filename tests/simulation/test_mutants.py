"""Each mutant of the product is found by the simulation."""

from __future__ import annotations

import pytest

from tests.simulation.__main__ import run
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutants.__main__ import finds, hunt

NAMED = {mutant.name: mutant for mutant in MUTANTS}


@pytest.mark.long
@pytest.mark.parametrize("name", NAMED)
def test_a_mutant_is_found(name: str) -> None:
    """By the seed that found it first when it was last hunted; only where that means something else by now, by any."""
    mutant = NAMED[name]
    assert finds(mutant, mutant.seed) or hunt(mutant) is not None


def test_a_mutant_is_gone_after_its_hunt() -> None:
    mutant = MUTANTS[0]
    assert finds(mutant, mutant.seed)
    assert not run(mutant.seed, mutant.protocol).failures
