"""The product with one guard, decision, budget or ledger rule removed or reversed: seeds must tell each from the real one."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Also, Mutant
from tests.simulation.mutants.of_library import LIBRARY
from tests.simulation.mutants.of_services import SERVICES
from tests.simulation.mutants.of_streams import STREAMS

MUTANTS: Final = (*LIBRARY, *STREAMS, *SERVICES)

__all__ = ("MUTANTS", "Also", "Mutant")
