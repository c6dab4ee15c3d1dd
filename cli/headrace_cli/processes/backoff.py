"""The delays before a dead process is started again."""

from __future__ import annotations

from typing import Final

FIRST_DELAY: Final = 1.0
LONGEST_DELAY: Final = 60.0
STABLE_SECONDS: Final = 10.0
"""Seconds without a break that a process must be ready before its delays begin at the first again."""


class Backoff:
    """Delays of 1, 2, 4 … 60 seconds; `reset` begins again at the first."""

    def __init__(self, first: float = FIRST_DELAY, longest: float = LONGEST_DELAY) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def next_delay(self) -> float:
        """Return how many seconds to wait now. The next delay is twice as long."""
        delay = self._next
        self._next = min(2 * delay, self._longest)
        return delay

    def reset(self) -> None:
        """Begin at the first delay again: the process has been ready for a while."""
        self._next = self._first
