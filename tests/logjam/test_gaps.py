"""What a consumer makes of a device's numbers, each case by itself. What was lost of all is asked of the tables: test_losses."""

from __future__ import annotations

import pytest
from headrace_logjam.devices.gaps import Numbers
from headrace_logjam.wire import LAST_NUMBER

NEW, SURE = "a connection has ended", "all comes by the new one"


@pytest.mark.parametrize(
    ("told", "gaps", "restarts", "behind"),
    [
        ((1, 2, 3), [], 0, []),
        ((4, 5), [], 0, []),  # where it begins is no gap
        ((1, 5, 6, 9), [(2, 5), (7, 9)], 0, []),
        ((1, 2, 6, 4, 5, 5, 7), [(3, 6)], 0, [4, 5, 5]),  # late, and twice
        ((7, 8, 1, 3), [(2, 3)], 1, []),  # 1 is sent at a start alone
        ((1, 1, 2), [], 0, [1]),  # … or twice
        ((LAST_NUMBER - 1, LAST_NUMBER, 1, 2), [], 1, []),
        ((7, NEW, SURE, 3, 4), [(1, 3)], 1, []),
        ((7, NEW, SURE, 9, 3), [(8, 9)], 0, [3]),  # the new connection goes on where the old one ended
        ((7, NEW, 9, 3, SURE, 4), [(8, 9), (1, 3)], 1, []),  # 9 came by the old one
        ((7, NEW, 3, 2, SURE), [(1, 3), (1, 2)], 2, []),  # two connections may have ended
        ((NEW, 7, 3, SURE), [(1, 3)], 1, []),
    ],
)
def test_each_case(told: tuple[int | str, ...], gaps: list[tuple[int, int]], restarts: int, behind: list[int]) -> None:
    counted, found = Numbers(), []
    for at, each in enumerate(told):
        if isinstance(each, int):
            found.append((each, counted.received(7, each, at)))
        else:
            counted.connection(sure=each == SURE)
    assert [(heard.gap.start, heard.gap.end) for _, heard in found if heard.gap is not None] == gaps
    assert [number for number, heard in found if heard.behind] == behind
    assert found[-1][1].start.restarts == restarts


def test_each_device_is_counted_by_itself_and_each_start_has_its_time() -> None:
    counted = Numbers()
    assert counted.received(7, 5, 100).start == (100, 0)
    assert counted.received(8, 5, 101).start == (101, 0)
    counted.connection(sure=False)
    counted.connection(sure=True)
    assert counted.received(7, 1, 90).start == (101, 1)  # our clock was set back
    assert counted.received(8, 6, 102).start == (101, 0)
