"""Which numbers of a device are said to be lost, by the session that the service runs and the query that `check-loss` runs.

`tests/simulation/devices.py` judges random histories of one consumer.
"""

from __future__ import annotations

import pytest
from headrace_common.session.interface import Message
from headrace_logjam.devices.consumer import ConsumerSession, SubscriptionMaker
from headrace_logjam.settings import LogjamLimits
from headrace_logjam.wire import Meta, encode_meta

from tests.contract.waiting import there
from tests.logjam.losses import Row, losses

LIMITS = LogjamLimits()


def said(*numbers: tuple[int, int], by: str = "a") -> list[Row]:
    """Rows of a process of a consumer that heard these numbers, each at its time (s)."""
    session, maker, rows = ConsumerSession("one", by, LIMITS), SubscriptionMaker("one", by, LIMITS), []
    for number, second in numbers:
        session.receive(Message([b"a-b", b"logs", b"%d" % second, encode_meta(Meta(0, 7, 1, number))]), second * 1000)
        for frame in session.frames():
            item = frame.messages[-1]  # type: ignore[attr-defined]
            rows.append((f"{number} {second} {by}", there(maker.about(item)).decode(), frame.received_ms))
    return rows


@pytest.mark.parametrize(
    ("rows", "lost"),
    [
        # Late: what is behind it is not told from another device's.
        (said((3, 0), (4, 1), (9, 2), (6, 3), (10, 4)), [(5, 6)]),
        (said((900, 0), (5, 0), (901, 1), (6, 1), (902, 2), (7, 2)), []),  # two devices of one number
        (said((5, 0), (900, 0), (6, 1), (901, 1), (7, 2), (902, 2)), []),
        # Starts of the device that one process heard, or the next one.
        (said((5, 0), (1, 2), (2, 3), (1, 4), (3, 5)), [(2, 3)]),
        (said((5, 0)) + said((3, 2)), [(1, 3)]),
        (said((5, 0), (6, 1)) + said((8, 3), (9, 4)), [(7, 8)]),
        (said((5, 0), (8, 9)) + said((2, 30), (3, 31), by="b"), [(1, 2), (6, 8)]),
        # What two consumers heard, whose clocks differ.
        (said((5, 0), (8, 9)) + said((9, 30), (10, 31), by="b"), [(6, 8)]),
        (said((5, 0), (9, 9), (12, 20)) + said((7, 8), (8, 9), (10, 12), by="b"), [(6, 7), (11, 12)]),
        (said((5, 0), (6, 1), (1, 10), (2, 11)) + said((6, 2), (1, 14), (2, 15), (3, 16), by="b"), []),
        (said((5, 0), (6, 1), (1, 14), (2, 15)) + said((6, 2), (1, 10), (3, 11), (5, 17), by="b"), [(4, 5)]),
        (said((5, 0), (1, 10), (1, 20), (3, 21)) + said((5, 1), (1, 11), (2, 12), (1, 21), (2, 22), by="b"), []),
        # A restart that only the other heard, 5 s before; numbers that it stored before this one began, and others since.
        (said((5, 0), (1, 20), (2, 21)) + said((5, 2), (1, 25), (4, 26), by="b"), [(2, 4)]),
        (said((5, 0), (8, 9), (9, 28)) + said((2, 30), (3, 31), by="b"), [(1, 2), (6, 8)]),
        (said((5, 0), (9, 28)) + said((5, 30), (6, 31), by="b"), [(1, 5), (6, 9)]),
    ],
)
def test_what_is_said_to_be_lost_was_lost(rows: list[Row], lost: list[tuple[int, int]]) -> None:
    assert [(start, end) for _, start, end in losses(rows)] == lost
