"""How old records are when they land: from their receive time to the commit of their batch. Needs no extra pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

_EDGES: Final = (0.5, 1, 2, 3, 4, 5, 6, 8, 10, 15, 30, 60, 300, 3600, 21_600, 86_400)
"""Seconds. An age is known to within two neighbouring edges. Twice as many cost an event one more comparison."""

SPANS: Final = len(_EDGES) + 1

_OLDEST: Final = 7 * 86_400.0  # seconds; the age of anything beyond the last edge


def span() -> str:
    """Returns SQL: the number of the span in which the age of a row at `landed_at` lies, below `SPANS`."""
    age = "unix_micros(landed_at) - unix_micros(received_time)"  # the same generated code for each batch: see `decode`
    return _search(age, 0, len(_EDGES))


def _search(age: str, first: int, last: int) -> str:
    """Returns SQL: the number of the first edge from `first` on that is not below `age`; else `last`."""
    if first == last:
        return str(first)
    middle = (first + last) // 2
    below, above = _search(age, first, middle), _search(age, middle + 1, last)
    return f"if({age} <= {round(_EDGES[middle] * 1_000_000)}L, {below}, {above})"


@dataclass(frozen=True)
class Ages:
    """The ages of a batch's events at its commit, in seconds: (from, to, how many), youngest first."""

    spans: Sequence[tuple[float, float, int]]

    def quantile(self, share: float) -> float:
        """Returns the age in seconds that `share` of the events did not exceed; 0 without events. Linear between two edges."""
        wanted = share * sum(count for _, _, count in self.spans)
        for start, end, count in self.spans:
            if count and wanted <= count:
                return start + (end - start) * wanted / count
            wanted -= count
        return 0.0


def ages(counts: Mapping[int, int], seconds: float) -> Ages:
    """Returns the ages of events, from the number of them in each `span`; the commit came `seconds` after `landed_at`."""
    edges = pairwise((0.0, *_EDGES, _OLDEST))
    return Ages([(start + seconds, end + seconds, counts.get(number, 0)) for number, (start, end) in enumerate(edges)])
