"""``python -m tests.simulation.mutants NAME``: makes the mutant in this process, and says which seed finds it.

Status 1: none does.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from tests.simulation.mutants import MUTANTS, Mutant

MOST = 500
"""Seeds within which a mutant must be found."""


def mutate(mutant: Mutant) -> None:
    """Imports the mutant's module in place of the product's. Call it before anything else has imported that."""
    assert mutant.module not in sys.modules
    spec = importlib.util.find_spec(mutant.module)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text()
    assert source.count(mutant.old) == 1, f"{mutant.name}: occurs {source.count(mutant.old)} times in {mutant.module}"
    module = importlib.util.module_from_spec(spec)
    sys.modules[mutant.module] = module
    exec(compile(source.replace(mutant.old, mutant.new), spec.origin, "exec"), module.__dict__)
    parent, _, name = mutant.module.rpartition(".")
    setattr(sys.modules[parent], name, module)


def hunt(mutant: Mutant) -> int:
    mutate(mutant)
    from tests.simulation.__main__ import run

    for seed in range(MOST):
        if failures := run(seed, mutant.protocol).failures:
            print(f"{mutant.name}: seed {seed} of {mutant.protocol}: {failures[0]}")
            return 0
    print(f"{mutant.name}: not found in {MOST} seeds of {mutant.protocol}")
    return 1


if __name__ == "__main__":
    sys.exit(hunt(next(mutant for mutant in MUTANTS if mutant.name == sys.argv[1])))
