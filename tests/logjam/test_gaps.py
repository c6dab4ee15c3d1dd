"""Gaps by numbers, each case by itself. All together, against a model that knows what was published: test_loss_model."""

from __future__ import annotations

from typing import Any

import pytest
from headrace_logjam.devices.gaps import (
    COINCIDENCES,
    REMEMBERED,
    Findings,
    Gap,
    MessageFacts,
    Notice,
    Numbers,
)
from headrace_logjam.wire import LAST_NUMBER


def told(*numbers: int | tuple[int, int], device: int = 7) -> tuple[list[tuple[int, int]], list[str]]:
    """Ranges and notices of these numbers; each is a message of its own, or one with this content."""
    counted = Numbers()
    gaps: list[Gap] = []
    notices = []
    for at, number in enumerate(numbers):
        sequence, content = number if isinstance(number, tuple) else (number, 1000 * (at + 1))
        found = counted.received(device, MessageFacts(sequence, at, content))
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
        ((1, (2, 5), (2, 6)), [(1, 2)], ["restarted"]),
        ((1, 2, 6, 4, (5, 5), (5, 5), 7), [(3, 6)], ["went_back", "went_back", "duplicate"]),
        ((9, 12, 3, 4), [(1, 9), (10, 12), (1, 3)], ["joined", "restarted"]),
        ((LAST_NUMBER - 1, LAST_NUMBER, 1, 2), [(1, LAST_NUMBER - 1)], ["joined", "wrapped"]),
        (
            (LAST_NUMBER - 1, 2, 3),
            [(1, LAST_NUMBER - 1), (LAST_NUMBER, LAST_NUMBER + 1), (1, 2)],
            ["joined", "wrapped"],
        ),
    ],
)
def test_each_case(numbers: tuple[Any, ...], gaps: list[tuple[int, int]], notices: list[str]) -> None:
    assert told(*numbers) == (gaps, notices)


def test_while_it_is_not_sure_by_which_connection_messages_come_nothing_is_late() -> None:
    counted = Numbers()
    counted.connection(sure=False)
    for number in (1, 10):
        counted.received(7, MessageFacts(number, number, number))
    assert counted.received(7, MessageFacts(5, 11, 11)).notice is Notice.RESTARTED
    counted.connection(sure=True)
    counted.received(7, MessageFacts(9, 12, 12))
    assert counted.received(7, MessageFacts(7, 13, 13)).notice is Notice.WENT_BACK


def test_a_gap_is_bounded_by_its_neighbours() -> None:
    counted = Numbers()
    assert counted.received(7, MessageFacts(3, 30, 1)).gaps == [Gap(7, 1, 3, None, 30)]
    assert counted.received(7, MessageFacts(6, 60, 2)).gaps == [Gap(7, 4, 6, 30, 60)]
    assert counted.received(7, MessageFacts(2, 90, 3)).gaps == [Gap(7, 1, 2, 60, 90)]


@pytest.mark.parametrize("device", [0, 7])
def test_devices_are_counted_apart_and_device_0_like_any(device: int) -> None:
    counted = Numbers()
    for each in (device, 8):
        assert counted.received(each, MessageFacts(1, 5, 1)).notice is None
    assert counted.received(8, MessageFacts(2, 5, 2)).gaps == []
    assert counted.received(device, MessageFacts(4, 5, 3)).gaps == [Gap(device, 2, 4, 5, 5)]


def test_two_devices_behind_one_endpoint_are_known_by_their_heartbeats() -> None:
    """One at a time, as a virtual address has it. What the first one published meanwhile is in markers when it comes back."""
    counted = Numbers()
    told = [counted.received(7, MessageFacts(each, each, each)).notice for each in (100, 101)]
    assert counted.received(7, MessageFacts(102, 1, 1, b"tcp://a")).notice is None
    counted.received(7, MessageFacts(103, 2, 2))
    found = counted.received(7, MessageFacts(150, 3, 3))  # of the other one
    assert (told, [gap[1:3] for gap in found.gaps]) == ([Notice.JOINED, None], [(104, 150)])
    assert counted.received(7, MessageFacts(151, 4, 4, b"tcp://b")) == Findings([], Notice.DOUBLED)
    found = counted.received(7, MessageFacts(160, 5, 5, b"tcp://a"))
    assert (found.notice, [gap[1:3] for gap in found.gaps]) == (
        Notice.DOUBLED,
        [(152, 160), (103, 104), (150, 152), (160, 161)],
    )
    assert counted.received(7, MessageFacts(161, 6, 6, b"tcp://a")).notice is None
    assert counted.received(7, MessageFacts(155, 7, 7)).notice is Notice.WENT_BACK
    counted.connection(sure=True)
    assert counted.received(7, MessageFacts(156, 8, 8, b"tcp://b")).notice is Notice.DOUBLED


def test_a_device_that_restarts_elsewhere_is_one() -> None:
    counted = Numbers()
    told = [(1, b"tcp://a"), (2, b""), (1, b"tcp://b"), (2, b"tcp://b")]
    notices = [
        counted.received(7, MessageFacts(number, at, at, address)).notice for at, (number, address) in enumerate(told)
    ]
    assert notices == [None, None, Notice.RESTARTED, None]


def test_two_devices_at_once_are_known_by_their_runs() -> None:
    """Something between them and us joins their streams. First all is called lost, then nothing that came."""
    numbers = [number for at in range(10) for number in (9000 + at, 5 + at)]
    gaps, notices = told(*numbers)
    assert notices[COINCIDENCES:].count("doubled") >= len(numbers) - COINCIDENCES - 3
    assert len(gaps) <= COINCIDENCES + 2
    gaps, notices = told(*(number for start in range(1000, 9000, 1000) for number in (start, start + 1, start % 7 + 1)))
    assert "doubled" not in notices


def test_what_is_remembered_is_bounded() -> None:
    counted = Numbers()
    for number in range(1, 6 * REMEMBERED, 2):
        counted.received(7, MessageFacts(number, number, number, b"tcp://a" if number == 1 else b""))
    device = counted._devices[7]
    assert len(device._missing) == len(device._reported) == REMEMBERED
    for number in range(6 * REMEMBERED, 9 * REMEMBERED):
        counted.received(7, MessageFacts(number, number, number))
    assert len(device._seen) == REMEMBERED


def test_between_what_is_stored_the_holes_are_known_at_the_start() -> None:
    counted = Numbers({7: (10, 5)}, {7: [(11, 13), (15, 20)]})
    assert counted.holes == [Gap(7, 13, 15, 5, None)]
    assert counted.received(7, MessageFacts(22, 30, 1)).gaps == [Gap(7, 20, 22, 5, 30)]
