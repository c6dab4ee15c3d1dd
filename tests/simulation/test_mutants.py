"""Each mutant of the product is found by the simulation."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.simulation.mutants import MUTANTS


@pytest.mark.long
@pytest.mark.parametrize("name", [mutant.name for mutant in MUTANTS])
def test_a_mutant_is_found(name: str) -> None:
    hunt = subprocess.run(
        [sys.executable, "-m", "tests.simulation.mutants", name], capture_output=True, text=True, check=False
    )
    assert hunt.returncode == 0, hunt.stdout + hunt.stderr
