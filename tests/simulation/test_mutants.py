"""Each mutant of the product is found by the simulation."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, hunt


@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found(name: str) -> None:
    assert hunt(MUTANTS[name]) is not None
