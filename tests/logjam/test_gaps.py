"""Gaps by numbers: each case by itself, and all together against a model that knows what was published."""

from __future__ import annotations

from typing import Any

import pytest
from headrace_logjam.devices.gaps import LAST_NUMBER, REMEMBERED, Gap, Notice, Numbers
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples


def told(*numbers: int | tuple[int, int], device: int = 7) -> tuple[list[tuple[int, int]], list[str]]:
    """Ranges and notices of these numbers; created at 1000 and a second later each, if not said."""
    counted = Numbers()
    gaps: list[Gap] = []
    notices = []
    for at, number in enumerate(numbers):
        sequence, created = number if isinstance(number, tuple) else (number, 1000 * (at + 1))
        found = counted.received(device, sequence, created)
        gaps += found.gaps
        notices += [found.notice.value] if found.notice else []
    return [(gap.start, gap.end) for gap in gaps], notices


@pytest.mark.parametrize(
    ("numbers", "gaps", "notices"),
    [
        ((1, 2, 3), [], []),
        ((1, 3), [(2, 3)], []),
        ((1, 5, 6, 9), [(2, 5), (7, 9)], []),
        ((4,), [(1, 4)], ["joined"]),
        ((1, 2, 3, 1, 2), [], ["restarted"]),
        ((1, 2, 3, 2, 3), [(1, 2)], ["restarted"]),
        ((1, (2, 5), (2, 5), (3, 5)), [], ["duplicate"]),
        (((1, 5), (2, 5), (6, 5), (4, 5), (5, 5), (5, 5), (7, 5)), [(3, 6)], ["went_back", "went_back", "duplicate"]),
        ((LAST_NUMBER - 1, LAST_NUMBER, 1, 2), [(1, LAST_NUMBER - 1)], ["joined", "wrapped"]),
        (
            (LAST_NUMBER - 1, 2, 3),
            [(1, LAST_NUMBER - 1), (LAST_NUMBER, LAST_NUMBER + 1), (1, 2)],
            ["joined", "wrapped"],
        ),
        ((9000, 5, 9001, 6, 9002, 7), [(1, 9000), (1, 5)], ["joined", "restarted", "doubled"]),
    ],
)
def test_each_case(numbers: tuple, gaps: list[tuple[int, int]], notices: list[str]) -> None:
    assert told(*numbers) == (gaps, notices)


def test_a_gap_is_bounded_by_its_neighbours() -> None:
    counted = Numbers()
    assert counted.received(7, 3, 30).gaps == [Gap(7, 1, 3, None, 30)]
    assert counted.received(7, 6, 60).gaps == [Gap(7, 4, 6, 30, 60)]
    assert counted.received(7, 2, 90).gaps == [Gap(7, 1, 2, 60, 90)]


def test_devices_are_counted_apart_and_device_0_is_not() -> None:
    counted = Numbers()
    assert counted.received(1, 1, 5).notice is None
    assert counted.received(2, 1, 5).notice is None
    assert counted.received(1, 2, 5).gaps == counted.received(2, 2, 5).gaps == []
    for number in (5, 1, 9):
        found = counted.received(0, number, 5)
        assert (found.gaps, found.notice) == ([], Notice.UNNUMBERED)


def test_what_is_remembered_is_bounded() -> None:
    counted = Numbers()
    for number in range(1, 6 * REMEMBERED, 2):
        counted.received(7, number, number)
    device = counted._devices[7]
    assert len(device._gaps) == REMEMBERED
    for number in range(6 * REMEMBERED, 9 * REMEMBERED):
        counted.received(7, number, number)
    assert len(device._seen) == REMEMBERED


LIVES = st.lists(st.lists(st.sampled_from("....xxdb"), min_size=1, max_size=40), min_size=1, max_size=4)


@settings(max_examples=examples(3000))
@given(LIVES, st.randoms(use_true_random=False))
def test_events_and_gaps_are_all_that_was_published(lives: list[list[str]], chance: Any) -> None:
    """Each life of a device gives numbers from 1 on; `x` is lost, `d` comes twice, `b` comes later than others.

    Creation times rise. What is left when a life ends cannot be known; up to the last number that came, received numbers and
    gaps are all numbers, each once.
    """
    counted = Numbers()
    clock = before = 0
    for first, life in enumerate(lives):
        late: list[tuple[int, int]] = []
        came: list[tuple[int, int, str]] = []
        for sequence, fate in enumerate(life, 1):
            clock += 1
            if fate == "b":
                late.append((sequence, clock))
                continue
            if fate != "x":
                came += [(sequence, clock, fate)] * (2 if fate == "d" else 1)
                if late and chance.random() < 0.5:
                    came += [(*late.pop(chance.randrange(len(late))), "b")]
        if not came or (first and came[0][0] > before):
            return  # a restart that cannot be told
        before = max(sequence for sequence, _, fate in came if fate != "b")
        gaps: list[Gap] = []
        notices = []
        highest = 0
        seen = set()
        for sequence, created, fate in came:
            found = counted.received(7, sequence, created)
            gaps += found.gaps
            notices.append(found.notice)
            if fate == "b":
                assert found.notice is Notice.WENT_BACK
            else:
                highest = max(highest, sequence)
                seen.add(sequence)
        missing = [number for gap in gaps for number in range(gap.start, gap.end)]
        assert Notice.DOUBLED not in notices
        assert len(set(missing)) == len(missing)
        assert sorted([*missing, *seen]) == list(range(1, highest + 1))
        assert notices.count(Notice.DUPLICATE) == sum(fate == "d" for *_, fate in came) // 2
        assert notices.count(Notice.RESTARTED) <= 1
        assert (notices[0] is None or notices[0] in (Notice.RESTARTED, Notice.JOINED)) or first
