"""How long small pieces of work wait for a slice, behind the long work of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headrace_common.fairness.scheduler import TIME_SLICE, Account, Entry, Lane, Scheduler

MOST: Final = 2
"""Slices in a row that long work may have while a small piece waits."""


class WatchedScheduler(Scheduler):
    """Calls `late` with the seconds for which a small piece has waited, when they are too many."""

    def __init__(self, late: Callable[[float], None], *, cpu: Callable[[], float]) -> None:
        super().__init__(cpu=cpu)
        self._late = late
        self._passed_over = 0
        self._is_long = False

    def charge(self, account: Account) -> None:
        self._is_long = True
        super().charge(account)

    def _serve(self) -> None:
        before, self._is_long = self._first_small(), False
        super()._serve()
        if not self._is_long or before is None or before is not self._first_small():
            self._passed_over = 0
            return
        self._passed_over += 1
        if self._passed_over > MOST:
            self._late(self._passed_over * TIME_SLICE)

    def _first_small(self) -> Entry | None:
        return min((entry for entry in self._lines[Lane.SMALL] if entry[-1].entry is entry), default=None)
