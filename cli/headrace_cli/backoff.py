"""Pauses before a process that died is started again."""

from __future__ import annotations

from typing import Final

FIRST: Final = 1.0
LONGEST: Final = 60.0
STABLE: Final = 10.0
"""Seconds a process must have been ready without a break for its past to be forgotten."""


class Backoff:
    """1, 2, 4 … 60 seconds; from the start again after `stable` has been called."""

    def __init__(self, first: float = FIRST, longest: float = LONGEST) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def pause(self) -> float:
        """Seconds to wait now."""
        pause = self._next
        self._next = min(2 * pause, self._longest)
        return pause

    def stable(self) -> None:
        """The process has run well for a while."""
        self._next = self._first
