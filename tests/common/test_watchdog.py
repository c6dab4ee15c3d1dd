"""A loop that does not turn is reported, with what every thread is doing."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest
from headrace_common.service import watchdog
from headrace_common.service.watchdog import INTERVAL, LIMIT, Watchdog
from structlog.testing import CapturingLogger


class Bench:
    def __init__(self) -> None:
        self.now = 100.0
        self.log = CapturingLogger()
        self.watchdog = Watchdog(cast("Any", self.log), lambda: self.now)

    def pass_time(self, seconds: float, *, turning: bool) -> int:
        """How many stalls were reported meanwhile."""
        before = len(self.log.calls)
        until = self.now + seconds
        while self.now < until:
            self.now += 1
            if turning:
                self.watchdog.turned()
            self.watchdog.look()
        return len(self.log.calls) - before


def test_both_sides_of_the_limit() -> None:
    bench = Bench()
    assert bench.pass_time(LIMIT - 1, turning=False) == 0
    assert bench.pass_time(1, turning=False) == 1
    said, *_ = bench.log.calls
    assert (said.args, said.kwargs["seconds"]) == (("event loop stalled",), LIMIT)


def test_stalls_are_reported_once_in_an_interval() -> None:
    bench = Bench()
    for _ in range(5):
        bench.pass_time(LIMIT, turning=False)
        bench.pass_time(1, turning=True)
    assert len(bench.log.calls) == 1
    bench.pass_time(INTERVAL, turning=True)
    assert bench.pass_time(LIMIT, turning=False) == 1


def test_a_process_that_was_stopped_is_no_stall() -> None:
    bench = Bench()
    bench.now += 1000
    assert not bench.watchdog.look()
    assert bench.pass_time(LIMIT - 1, turning=False) == 0


def test_the_stacks_say_where_the_loop_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own thread, from outside the stalled one."""
    monkeypatch.setattr(watchdog, "LOOK", 0.001)
    monkeypatch.setattr(watchdog, "LIMIT", 0.01)
    log = CapturingLogger()
    dog = Watchdog(cast("Any", log))

    def busy_in_a_slice() -> None:
        dog.start()
        until = time.monotonic() + 60
        while not log.calls:
            assert time.monotonic() < until
            time.sleep(0.001)

    busy_in_a_slice()
    dog.stop()
    stacks = log.calls[0].kwargs["stacks"]
    (stack,) = (stack for name, stack in stacks.items() if name.startswith("MainThread"))
    assert any(entry.startswith("busy_in_a_slice") for entry in stack)
