"""The watermark by which ids expire."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from headrace_common.operations.settings import KafkaSettings
from headrace_lake.kafka import watermarks
from headrace_lake.kafka.watermarks import Watermarks

from tests.contract.waiting import there

NOW = 1_770_000_000_000


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


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    times = [NOW]
    monkeypatch.setattr(watermarks, "_now", lambda: times[-1])
    return times


def made(brokers: Brokers, next_offsets: dict[int, int], newest: int | None = 2 * NOW) -> Watermarks:
    """By default some record is from the far future, so that the clocks count."""
    return Watermarks(brokers, "e", next_offsets, newest)  # type: ignore[arg-type]


def test_the_slowest_partition_is_the_watermark(now: list[int]) -> None:
    brokers = Brokers({0: 100, 1: 100})
    found = made(brokers, {0: 0, 1: 0})
    found.ask()
    assert found.unknown() == {0: 0, 1: 0}
    assert found.watermark() is None
    found.start_at({0: NOW - 9000, 1: NOW - 8000})
    assert found.watermark() == NOW - 9000
    found.landed({0: 50, 1: 50}, {0: NOW - 5000, 1: NOW - 7000})
    assert found.watermark() == NOW - 7000
    found.landed({1: 60}, {1: NOW - 7500})  # out of order: a watermark never goes back
    assert found.watermark() == NOW - 7000


def test_there_is_none_while_a_partition_has_landed_nothing(now: list[int]) -> None:
    """Its records may be as old as retention: ids of the others' time must not expire."""
    watermarks = made(Brokers({0: 10, 1: 10}), {0: 0, 1: 0})
    watermarks.ask()
    watermarks.landed({0: 5}, {0: NOW - 1})
    assert watermarks.watermark() is None
    watermarks.landed({1: 5}, {1: NOW - 9})
    assert watermarks.watermark() == NOW - 9


def test_a_partition_read_to_its_end_is_as_late_as_when_its_end_was_asked_for(now: list[int]) -> None:
    brokers = Brokers({0: 100, 1: 0})
    found = made(brokers, {0: 100, 1: 0})
    found.ask()
    assert found.watermark() == NOW, "an empty partition, too"
    brokers.ends[0] = 200
    now.append(NOW + 60_000)
    found.ask()
    assert found.watermark() == NOW, "there is more, and it may be as old"
    found.landed({0: 199}, {0: NOW + 10_000})
    assert found.watermark() == NOW + 10_000
    found.landed({0: 200}, {0: NOW + 11_000})
    assert found.watermark() == NOW + 60_000


def test_a_clock_that_is_ahead_does_not_make_ids_expire(now: list[int]) -> None:
    found = made(Brokers({0: 100}), {0: 0})
    found.ask()
    found.landed({0: 50}, {0: NOW + 3_600_000})
    assert found.watermark() == NOW


def test_a_batch_without_records_leaves_the_watermark(now: list[int]) -> None:
    found = made(Brokers({0: 100}), {0: 10})
    found.ask()
    found.start_at({0: NOW - 100})
    found.landed({0: 20}, {})
    assert found.watermark() == NOW - 100


def test_a_new_partition_joins_with_its_first_batch(now: list[int]) -> None:
    brokers = Brokers({0: 100, 1: 40})
    found = made(brokers, {0: 100})
    found.ask()
    found.landed({1: 20}, {1: NOW - 50})
    assert found.watermark() == NOW - 50


YEARS = 2 * 365 * 86_400_000
HOUR = 3_600_000


@pytest.mark.parametrize("kafka", [None, NOW, NOW + YEARS, NOW - YEARS])
@pytest.mark.parametrize("own", [NOW, NOW + HOUR, NOW + YEARS])
def test_no_clock_alone_makes_ids_expire(now: list[int], own: int, kafka: int | None) -> None:
    """Nothing is pending, and the newest record is of a minute ago: what landed lately has to be remembered."""
    now.append(own)
    last = NOW - 60_000
    found = made(Brokers({0: 100}, kafka), {0: 100}, last)
    found.ask()
    watermark = there(found.watermark())
    assert watermark <= last
    assert watermark == min(last, own, kafka or own)


def test_a_record_from_the_future_does_not_make_ids_expire_though_the_clock_is_ahead_too(now: list[int]) -> None:
    now.append(NOW + YEARS)
    found = made(Brokers({0: 100, 1: 100}, NOW), {0: 100, 1: 50}, NOW - 60_000)
    found.ask()
    found.start_at({1: NOW + YEARS})
    found.landed({1: 100}, {1: NOW + YEARS})
    assert found.watermark() == NOW


def test_a_clock_that_goes_back_and_comes_again_never_takes_the_watermark_back(now: list[int]) -> None:
    found = made(Brokers({0: 100}), {0: 100}, NOW)
    found.ask()
    for own in (NOW - HOUR, NOW - YEARS, NOW + HOUR):
        now.append(own)
        found.ask()
        assert found.watermark() == NOW


def test_without_any_record_no_partition_has_a_watermark_until_one_lands(now: list[int]) -> None:
    brokers = Brokers({0: 0, 1: 0})
    found = watermarks.at_start(None, brokers, KafkaSettings(), {0: 0, 1: 0}, never)  # type: ignore[arg-type]
    assert found.watermark() is None
    brokers.ends[1] = 3
    found.ask()
    found.landed({1: 3}, {1: NOW - 5})
    assert found.watermark() == NOW - 5


def test_if_kafka_has_no_record_any_more_the_newest_that_landed_counts(now: list[int]) -> None:
    now.append(NOW + HOUR)
    found = watermarks.at_start(None, Brokers({0: 9}), KafkaSettings(), {0: 9}, lambda: NOW)  # type: ignore[arg-type]
    assert found.watermark() == NOW


def never() -> int | None:
    return None


def test_at_start_the_first_record_is_looked_for_until_it_is_found(
    now: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an aborted transaction, or compaction, offsets have no record."""
    first = {0: (5, NOW - 70), 1: (400_000, NOW - 50)}  # partition -> offset and time; 2 has none at all
    asked = []

    def first_times(_: object, __: object, ranges: dict[int, tuple[int, int]]) -> dict[int, int]:
        asked.append(ranges)
        return {n: first[n][1] for n, (start, end) in ranges.items() if n in first and start <= first[n][0] < end}

    monkeypatch.setattr(watermarks, "_first_times", first_times)
    brokers = Brokers({0: 10, 1: 2_000_000, 2: 1_500, 3: 7}, newest=NOW)
    found = watermarks.at_start(None, brokers, KafkaSettings(), {0: 0, 1: 10, 2: 0, 3: 7}, never)  # type: ignore[arg-type]
    assert asked == [
        {0: (0, 1), 1: (10, 11), 2: (0, 1)},
        {0: (1, 10), 1: (11, 1_011), 2: (1, 1_001)},
        {1: (1_011, 1_001_011), 2: (1_001, 1_500)},
    ]
    assert found.watermark() == NOW - 70
