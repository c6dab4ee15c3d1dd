"""How many tasks land a batch: few for little, all cores for much, and no task with far too much."""

from __future__ import annotations

import pytest
from headrace_lake.landing.gathered import tasks


@pytest.mark.parametrize(
    ("sizes", "parallelism", "wanted"),
    [
        ([50] * 200, 64, 1),
        ([50] * 199 + [51], 64, 2),
        ([2_500] * 200, 64, 50),
        ([4_000] * 200, 64, 64),
        ([4_000] * 200, 300, 80),
        ([2_500] * 4, 2, 1),
        ([2_500] * 5, 2, 2),
        ([47_500] * 4, 2, 4),
        ([1_000] * 200, 2, 8),
        ([1_000] * 200, 64, 20),
        ([50_000, *[1] * 7], 2, 8),
        ([49_998, *[1] * 7], 2, 3),
        ([49_999, *[1] * 7], 2, 6),
        ([100_000] * 200, 2, 200),
        ([5], 8, 1),
    ],
)
def test_tasks(sizes: list[int], parallelism: int, wanted: int) -> None:
    assert tasks(sizes, parallelism) == wanted
