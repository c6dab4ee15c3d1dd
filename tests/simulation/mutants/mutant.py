"""What a mutant is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("seeds.json")
SEEDS: Final[dict[str, int]] = json.loads(FILE.read_text())
"""The first seed that finds each mutant. `python -m tests.simulation.mutants` writes them again."""


@dataclass(frozen=True)
class Also:
    """A change: `old` occurs once in `module`, and becomes `new`. A mutant's second one takes a guard away that would hide it."""

    module: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A change as well. `protocol`: whose seeds must find it. `seed`: the first that did when it was last hunted."""

    name: str
    module: str
    old: str
    new: str
    protocol: str = "forward"
    also: tuple[Also, ...] = ()

    @property
    def seed(self) -> int:
        return SEEDS.get(self.name, 0)
