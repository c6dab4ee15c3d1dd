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
    Lifetime,
    Limit,
    Phase,
)
from headrace_common.session.interface import Status


def rules(given: dict[str, Any], times: dict[str, Any]) -> list[tuple[float, Limit, bool]]:
    """Those of a connection that is read, between two frames, in this situation and with these times."""
    life = Lifetime(times.get("born", 0.0), frame_time=60, age=1000)
    for name, value in {**times, **{name: given[name] for name in given if name == "phase"}}.items():
        if name != "born":
            setattr(life, name, value)
    said = {name: given[name] for name in Status.__struct_fields__ if name in given}
    base = {"reading": True, "partial": False, "behind": False}
    return [*life.rules(Status(**said), **{name: given.get(name, usual) for name, usual in base.items()})]


def passed(given: dict[str, Any], times: dict[str, Any], now: float) -> Limit | None:
    return next((limit for due, limit, applies in rules(given, times) if applies and now >= due), None)


ROWS = [
    (Limit.UNREAD, {}, {"unread_since": 5.0}, 5 + WRITE_TIME),
    (Limit.UNREAD, {"phase": Phase.DRAINING}, {"unread_since": 5.0, "phase_until": 9e9}, 5 + WRITE_TIME),
    (Limit.LINGERED, {"phase": Phase.LINGERING}, {"last_byte": 3.0, "phase_until": 9e9}, 3 + LINGER_SILENCE),
    (Limit.LINGERED, {"phase": Phase.LINGERING, "behind": True}, {"last_byte": 9e8, "phase_until": LINGER_TIME}, LINGER_TIME),
    (Limit.DRAINED, {"phase": Phase.DRAINING}, {"phase_until": DRAIN_TIME}, DRAIN_TIME),
    (Limit.DRAINED, {"phase": Phase.CLOSED}, {"phase_until": DRAIN_TIME}, DRAIN_TIME),
    (Limit.FRAME_TIME, {"partial": True}, {"frame_began": 7.0, "last_byte": 7.0}, 67),
    (Limit.FRAME_TIME, {"partial": True}, {"frame_bytes": 10 * FRAME_TIME_BYTES, "last_byte": 60.0}, 70),
    (Limit.FRAME_TIME, {"partial": True}, {"frame_bytes": 10 * FRAME_TIME_BYTES, "last_byte": 1.0}, 61),
    (Limit.AGE, {}, {"born": 2.0, "last_byte": 900.0}, 1002),
]  # fmt: skip


@pytest.mark.parametrize(("limit", "given", "times", "due"), ROWS)
def test_a_limit_passes_at_its_moment_and_not_before(
    limit: Limit, given: dict[str, Any], times: dict[str, Any], due: float
) -> None:
    assert passed(given, times, due - 0.001) is not limit
    assert passed(given, times, due) is limit
    assert min(when for when, _, _ in rules(given, times)) <= due, "nobody would look"


@pytest.mark.parametrize(
    ("given", "times"),
    [
        ({"reading": False, "partial": True}, {}),
        ({"reading": False}, {}),
        ({"unacknowledgeable": True}, {}),
        ({"phase": Phase.SETTLING, "partial": True}, {}),
        ({"phase": Phase.CLOSED}, {"unread_since": 0.0}),
    ],
)
def test_what_no_limit_applies_to(given: dict[str, Any], times: dict[str, Any]) -> None:
    assert passed(given, times, 1e9) is None
