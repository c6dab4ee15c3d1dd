"""Chance with one place that grows: the same choices at any size, so that the cost of two sizes can be compared."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

FEW: Final = (0, 1, 1, 2, 3, 5)
POOL: Final = 3
"""Different things of which the place that grows consists."""


class Shape(random.Random):
    """Each call of `many`, `text` or `deep` is a place. The place with the number `hot` gets `size` things, all others few."""

    def __init__(self, seed: str, hot: int = -1, size: int = 0) -> None:
        super().__init__(seed)
        self._hot = hot
        self._size = size
        self.places = 0
        """Places so far."""

    def many(self, make: Callable[[int], T], *, pool: bool = True, few: Sequence[int] = FEW) -> list[T]:
        """Things, made of their indices. `pool`: at the place that grows, only `POOL` of them are made and repeated."""
        hot, count = self._place(few)
        if not hot:
            return [make(index) for index in range(count)]
        made = [make(index) for index in range(POOL if pool else self._size)]
        return [made[index % len(made)] for index in range(self._size)]

    def text(self, *units: bytes) -> bytes:
        """One of `units`, again and again."""
        hot, count = self._place((0, 1, 3, 8, 40))
        return self.choice(units) * (self._size if hot else count)

    def deep(self, inner: bytes, *wraps: tuple[bytes, bytes]) -> bytes:
        """`inner` within one of `wraps`, within it, and so on."""
        hot, count = self._place((1, 2, 5, 60))
        before, behind = self.choice(wraps)
        levels = self._size if hot else count
        return before * levels + inner + behind * levels

    def perhaps(self, probability: float) -> bool:
        return self.random() < probability

    def _place(self, few: Sequence[int]) -> tuple[bool, int]:
        self.places += 1
        return self.places - 1 == self._hot, self.choice(few)


def grown(make: Callable[[Shape], T], seed: str, size: int) -> T:
    """What `make` makes when one of its places has `size` things; which one, the seed says."""
    places = (dry := Shape(seed), make(dry))[0].places
    return make(Shape(seed, random.Random(f"{seed} place").randrange(places) if places else -1, size))
