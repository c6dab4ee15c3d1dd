"""From which time on ids have to be known, by the clocks and by the records that have not landed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from headrace_lake.kafka import unlanded

NOW = 1_770_000_000_000
YEARS = 2 * 365 * 86_400_000
HOUR = 3_600_000


class Brokers:
    def __init__(self, ends: dict[int, int], clock: int | None = None, newest: int | None = None) -> None:
        self.ends = ends
        self.clock = clock
        self.last = newest

    def time(self) -> int | None:
        return self.clock

    def newest(self, pairs: Iterable[tuple[str, int]]) -> int | None:
        return self.last

    def offsets(self, pairs: Iterable[tuple[str, int]], *, earliest: bool) -> dict[tuple[str, int], int]:
        assert not earliest
        return {pair: self.ends[pair[1]] for pair in pairs}


def nothing(_: object) -> dict[tuple[str, int], int]:
    raise AssertionError


@pytest.mark.parametrize("kafka", [None, NOW, NOW + YEARS, NOW - YEARS])
@pytest.mark.parametrize("own", [NOW, NOW + HOUR, NOW + YEARS, NOW - YEARS])
@pytest.mark.parametrize("newest", [None, NOW - 60_000, NOW + YEARS])
def test_no_clock_alone_and_no_record_from_the_future_hides_what_landed_lately(
    monkeypatch: pytest.MonkeyPatch, own: int, kafka: int | None, newest: int | None
) -> None:
    monkeypatch.setattr(unlanded, "time", SimpleNamespace(time=lambda: own / 1000))
    told = [each for each in (own, kafka, newest) if each is not None]
    asked: Any = Brokers({0: 100}, kafka, newest)
    assert unlanded.oldest(asked, {("t", 0): 100}, nothing) == min(told)


def test_the_first_record_is_looked_for_until_it_is_found() -> None:
    """After an aborted transaction, or compaction, offsets have no record."""
    first = {0: (5, NOW - 70), 1: (400_000, NOW - 50)}  # partition -> offset and time; 2 has none at all
    asked = []

    def first_times(ranges: Mapping[tuple[str, int], tuple[int, int]]) -> dict[tuple[str, int], int]:
        asked.append({number: limits for (_, number), limits in ranges.items()})
        inside = {n for (_, n), (start, end) in ranges.items() if n in first and start <= first[n][0] < end}
        return {("t", number): first[number][1] for number in inside}

    brokers: Any = Brokers({0: 10, 1: 2_000_000, 2: 1_500, 3: 7}, newest=NOW)
    assert unlanded.oldest(brokers, {("t", 0): 0, ("t", 1): 10, ("t", 2): 0, ("t", 3): 7}, first_times) == NOW - 70
    assert asked == [
        {0: (0, 1), 1: (10, 11), 2: (0, 1)},
        {0: (1, 10), 1: (11, 1_011), 2: (1, 1_001)},
        {1: (1_011, 1_001_011), 2: (1_001, 1_500)},
    ]
