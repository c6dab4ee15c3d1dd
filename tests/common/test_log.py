"""Logs: a peer cannot fill a disk."""

from __future__ import annotations

from typing import Any

from headrace_common.log import RateLimited


class Lines:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def warning(self, event: str, **values: Any) -> None:
        self.lines.append((event, values))


class TestRateLimited:
    def make(self) -> tuple[RateLimited, Lines]:
        self.now = 100.0
        lines = Lines()
        return RateLimited(lines, burst=3, interval=10.0, clock=lambda: self.now), lines  # type: ignore[arg-type]

    def test_a_burst_and_no_more(self) -> None:
        limited, lines = self.make()
        for number in range(100):
            limited.warning("bad", number=number)
        assert [values["number"] for _, values in lines.lines] == [0, 1, 2]

    def test_the_next_window_says_how_many_there_were(self) -> None:
        limited, lines = self.make()
        for _ in range(100):
            limited.warning("bad")
        self.now += 9.9
        limited.warning("bad")
        assert len(lines.lines) == 3
        self.now += 0.2
        limited.warning("bad")
        limited.warning("bad")
        assert lines.lines[3:] == [("bad", {"suppressed": 98}), ("bad", {})]

    def test_events_are_counted_apart(self) -> None:
        limited, lines = self.make()
        for _ in range(5):
            limited.warning("a")
            limited.warning("b")
        assert [event for event, _ in lines.lines] == ["a", "b"] * 3

    def test_few_are_never_held_back(self) -> None:
        limited, lines = self.make()
        for _ in range(50):
            limited.warning("rare", x=1)
            self.now += 5
        assert lines.lines == [("rare", {"x": 1})] * 50
