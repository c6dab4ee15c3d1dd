"""How many rows meet each of many conditions, counted on their way: several counts in one aggregate.

An aggregate that is observed costs every row, whatever it counts, and every batch, which has to build it through py4j. So
as many counts share a 64-bit sum as a batch's size leaves room for: three where a batch has less than two million rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

_BITS: Final = 63  # of a long that stays positive
_USUAL: Final = 21  # bits of a count: the same generated code for all batches but huge ones


class Tally:
    """Counts of at most `rows` rows: the names of the counts, and their conditions as SQL."""

    def __init__(self, conditions: Mapping[str, str], rows: int) -> None:
        self._width: Final = max(_USUAL, rows.bit_length())
        together = max(1, _BITS // self._width)
        every = list(conditions.items())
        self._sums: Final = [every[start : start + together] for start in range(0, len(every), together)]

    def columns(self) -> list[Column]:
        """Aggregates, whose values are for `counts`. A condition that is null is not met."""
        return [
            sf.expr(f"sum({' + '.join(map(self._one, range(len(part)), part))}) as tally{number}")
            for number, part in enumerate(self._sums)
        ]

    def counts(self, seen: Mapping[str, Any]) -> dict[str, int]:
        """What the aggregates came to, by the counts' names; `seen` may hold more."""
        return {
            name: (seen[f"tally{number}"] or 0) >> (self._width * place) & ((1 << self._width) - 1)
            for number, part in enumerate(self._sums)
            for place, (name, _) in enumerate(part)
        }

    def _one(self, place: int, named: tuple[str, str]) -> str:
        return f"if({named[1]}, {1 << (self._width * place)}L, 0L)"
