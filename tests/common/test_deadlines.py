"""Every time limit on a connection, on both sides of its moment."""

from __future__ import annotations

from typing import Any

import pytest
from headrace_common.connection.deadlines import (
    DRAIN_TIME,
    FRAME_TIME_BYTES,
    LINGER_SILENCE,
    LINGER_TIME,
    WRITE_TIME,
    ConnectionTimes,
    Limit,
    Phase,
    Situation,
    TimeLimits,
    next_due,
    passed,
)
from headrace_common.session.interface import Status

LIMITS = TimeLimits(frame=60, age=1000)


def situation(**changes: Any) -> Situation:
    said = {name: changes.pop(name) for name in Status.__struct_fields__ if name in changes}
    base: dict[str, Any] = {
        "phase": Phase.OPEN, "reading": True, "partial": False, "behind": False,
        "crowded": False, "session": Status(**said),
    }  # fmt: skip
    return Situation(**{**base, **changes})


def clocks(**changes: Any) -> ConnectionTimes:
    return ConnectionTimes(**{"born": 0.0, "last_byte": 0.0, "frame_began": 0.0, **changes})


ROWS = [
    (Limit.UNREAD, {}, {"unread_since": 5.0}, 5 + WRITE_TIME),
    (Limit.UNREAD, {"phase": Phase.DRAINING}, {"unread_since": 5.0, "phase_until": 9e9}, 5 + WRITE_TIME),
    (Limit.LINGERED, {"phase": Phase.LINGERING}, {"last_byte": 3.0, "phase_until": 9e9}, 3 + LINGER_SILENCE),
    (Limit.LINGERED, {"phase": Phase.LINGERING, "behind": True}, {"last_byte": 9e8, "phase_until": LINGER_TIME}, LINGER_TIME),
    (Limit.DRAINED, {"phase": Phase.DRAINING}, {"phase_until": DRAIN_TIME}, DRAIN_TIME),
    (Limit.FRAME_TIME, {"partial": True}, {"frame_began": 7.0, "last_byte": 7.0}, 67),
    (Limit.FRAME_TIME, {"partial": True}, {"frame_bytes": 10 * FRAME_TIME_BYTES, "last_byte": 1.0}, 70),
    (Limit.FRAME_TIME, {"partial": True, "crowded": True}, {"frame_bytes": 10 * FRAME_TIME_BYTES, "last_byte": 1.0}, 61),
    (Limit.AGE, {}, {"born": 2.0, "last_byte": 900.0}, 1002),
]  # fmt: skip


@pytest.mark.parametrize(("limit", "given", "times", "due"), ROWS)
def test_a_limit_passes_at_its_moment_and_not_before(
    limit: Limit, given: dict[str, Any], times: dict[str, Any], due: float
) -> None:
    at = clocks(**times)
    assert passed(situation(**given), at, LIMITS, due - 0.001) is not limit
    assert passed(situation(**given), at, LIMITS, due) is limit
    first = next_due(situation(**given), at, LIMITS)
    assert first is not None
    assert first <= due, "nobody would look"


@pytest.mark.parametrize(
    ("given", "times"),
    [
        ({"reading": False, "partial": True}, {}),
        ({"reading": False}, {}),
        ({"unacknowledgeable": True}, {}),
        ({"phase": Phase.SETTLING, "partial": True}, {}),
        ({"phase": Phase.CLOSED}, {"unread_since": 0.0, "phase_until": 0.0}),
    ],
)
def test_what_no_limit_applies_to(given: dict[str, Any], times: dict[str, Any]) -> None:
    assert passed(situation(**given), clocks(**times), LIMITS, 1e9) is None
