"""From which time on ids have to be known, by the clocks and by the records that have not landed."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from headrace_common.operations.settings import KafkaSettings
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


def oldest(brokers: Brokers, next_offsets: dict[int, int]) -> int:
    return unlanded.oldest(None, brokers, KafkaSettings(), next_offsets)  # type: ignore[arg-type]


@pytest.mark.parametrize("kafka", [None, NOW, NOW + YEARS, NOW - YEARS])
@pytest.mark.parametrize("own", [NOW, NOW + HOUR, NOW + YEARS, NOW - YEARS])
@pytest.mark.parametrize("newest", [None, NOW - 60_000, NOW + YEARS])
def test_no_clock_alone_and_no_record_from_the_future_hides_what_landed_lately(
    monkeypatch: pytest.MonkeyPatch, own: int, kafka: int | None, newest: int | None
) -> None:
    monkeypatch.setattr(unlanded, "_now", lambda: own)
    told = [each for each in (own, kafka, newest) if each is not None]
    assert oldest(Brokers({0: 100}, kafka, newest), {0: 100}) == min(told)


def test_the_first_record_is_looked_for_until_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an aborted transaction, or compaction, offsets have no record."""
    first = {0: (5, NOW - 70), 1: (400_000, NOW - 50)}  # partition -> offset and time; 2 has none at all
    asked = []

    def first_times(_: object, __: object, ranges: dict[int, tuple[int, int]]) -> dict[int, int]:
        asked.append(ranges)
        return {n: first[n][1] for n, (start, end) in ranges.items() if n in first and start <= first[n][0] < end}

    monkeypatch.setattr(unlanded, "_first_times", first_times)
    brokers = Brokers({0: 10, 1: 2_000_000, 2: 1_500, 3: 7}, newest=NOW)
    assert oldest(brokers, {0: 0, 1: 10, 2: 0, 3: 7}) == NOW - 70
    assert asked == [
        {0: (0, 1), 1: (10, 11), 2: (0, 1)},
        {0: (1, 10), 1: (11, 1_011), 2: (1, 1_001)},
        {1: (1_011, 1_001_011), 2: (1_001, 1_500)},
    ]
