"""How old records are when they land: from their receive time to the commit of their batch, without a pass of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

_EDGES: Final = (0.5, 1, 2, 3, 4, 5, 6, 8, 10, 15, 30, 60, 300, 3600, 21_600, 86_400)
"""Seconds. Each costs every event a comparison; an age is known as well as the distance of two of them."""

_OLDEST: Final = 7 * 86_400.0  # what is older than the last edge counts as this, in seconds


def conditions(counted: str) -> dict[str, str]:
    """For a `Tally` of rows with `received_time`, of those that are `counted`: how many are at most so old at `landed_at`."""
    age = "unix_micros(landed_at) - unix_micros(received_time)"  # the same code for each batch: see `decode`
    return {f"age{index}": f"{age} <= {round(edge * 1_000_000)} and {counted}" for index, edge in enumerate(_EDGES)}


@dataclass(frozen=True)
class Ages:
    """Ages of a batch's events when it was committed: (from, to, how many), in seconds, the youngest first."""

    spans: Sequence[tuple[float, float, int]]

    def quantile(self, share: float) -> float:
        """The age, in seconds, that `share` of the events did not exceed; 0 of none. Linear between two edges."""
        wanted = share * sum(count for _, _, count in self.spans)
        for start, end, count in self.spans:
            if count and wanted <= count:
                return start + (end - start) * wanted / count
            wanted -= count
        return 0.0


def ages(seen: Mapping[str, int], total: int, seconds: float) -> Ages:
    """What `conditions` found among `total` events, whose batch took `seconds` from then on to its commit."""
    edges = (0.0, *_EDGES, _OLDEST)
    below = [0, *(seen[f"age{index}"] for index in range(len(_EDGES))), total]
    return Ages(
        [
            (start + seconds, end + seconds, last - first)
            for (start, end), (first, last) in zip(pairwise(edges), pairwise(below), strict=True)
        ]
    )
