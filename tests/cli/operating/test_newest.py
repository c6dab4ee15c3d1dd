"""The newest records of a topic: how many are kept, in bytes too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
from headrace_cli.operating.records import Kept
from headrace_cli.operating.topic import TopicReader, newest


class Reader:
    """Reads what a test has put there, a few at a time."""

    def __init__(self, records: Sequence[Kept], end: int) -> None:
        self._left = list(records)
        self._end = end

    async def step(self) -> list[Kept]:
        step, self._left = self._left[:3], self._left[3:]
        return step

    def before_the_end(self, record: Kept) -> bool:
        return record.offset < self._end

    async def at_the_end(self) -> bool:
        return not self._left


def kept(offset: int, size: int = 10) -> Kept:
    return Kept("t", 0, offset, offset, (), b"x" * size)


def reader(records: Sequence[Kept], end: int = 100) -> TopicReader:
    return cast("TopicReader", Reader(records, end))


async def test_the_newest_are_kept_the_oldest_first() -> None:
    found = await newest(reader([kept(n) for n in range(10)], end=8), 3, lambda record: record.offset != 6, 1000)
    assert [record.offset for record in found.records] == [4, 5, 7]
    assert (found.read, found.held, found.cut, found.late) == (8, 30, False, False)


@pytest.mark.parametrize(("most", "offsets", "cut"), [(30, [0, 1, 2], False), (29, [1, 2], True), (9, [], True)])
async def test_no_more_bytes_are_held_than_allowed(most: int, offsets: list[int], cut: bool) -> None:
    found = await newest(reader([kept(n) for n in range(3)]), 3, lambda _: True, most)
    assert [record.offset for record in found.records] == offsets
    assert (found.cut, found.held) == (cut, 10 * len(offsets))


async def test_it_ends_when_its_time_is_over() -> None:
    found = await newest(reader([kept(n) for n in range(9)]), 9, lambda _: True, 1000, seconds=-1)
    assert (found.read, found.late) == (3, True)
