"""The newest blocks in memory: what they cost, and which of them are there."""

from __future__ import annotations

import tracemalloc

import pytest
from headrace_segment.store.recent import RecentBlocks

from tests.driving import traced

LIMIT = 1 << 20


@pytest.mark.parametrize("segments", [1, 20_000])
def test_small_blocks_cost_no_more_than_the_limit(segments: int) -> None:
    """A client chooses how small they are, and in how many segments."""
    recent = RecentBlocks(LIMIT)
    names = [f"segment-{number}" for number in range(segments)]
    with traced():
        for number in range(20_000):
            recent.add(names[number % segments], 8 * (number // segments), number.to_bytes(8, "big"))
        held, _ = tracemalloc.get_traced_memory()
    assert held < 1.5 * LIMIT
    last = 8 * (19_999 // segments)
    assert recent.read(names[19_999 % segments], last, 8) == (19_999).to_bytes(8, "big")


def test_large_blocks_fill_it() -> None:
    recent = RecentBlocks(LIMIT)
    for number in range(32):
        recent.add("s", number << 16, bytes(1 << 16))
    assert recent.read("s", 18 << 16, 32 << 16) == bytes(14 << 16)
    assert recent.read("s", 15 << 16, 1) is None


def test_what_is_deleted_and_made_anew_is_counted_once() -> None:
    recent = RecentBlocks(LIMIT)
    for _ in range(1000):
        recent.add("s", 0, bytes(1 << 16))
        recent.drop("s")
    recent.add("s", 0, b"new")
    assert recent.read("s", 0, 9) == b"new"
    recent.add("t", 0, bytes(LIMIT))  # all others leave, and it, too
    assert recent.read("s", 0, 9) is None
    recent.add("s", 3, b"er")
    assert recent.read("s", 3, 9) == b"er"
