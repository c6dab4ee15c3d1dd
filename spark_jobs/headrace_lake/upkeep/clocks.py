"""Decides whether the job's clock is right: only then may maintenance delete anything by time.

Retention, vacuum and the clean-up of the log go by the job's own clock. A clock that is two years ahead would make them drop
every row. So the newest record that has landed in this run has to confirm it: a receiver's clock gave it its timestamp.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from headrace_common.operations.log import Log

from headrace_lake.upkeep.metrics import LakeMetrics

TOLERANCE: Final = 300.0
"""Seconds by which clocks may differ: more than a record waits for its batch, and days hardly notice it."""


class ClockGuard:
    """Compares the clocks, and says once when they begin or cease to disagree. Any thread may call it.

    `elapsed`: seconds by a clock that nobody sets.
    """

    def __init__(
        self,
        metrics: LakeMetrics,
        log: Log,
        now: Callable[[], float] = lambda: time.time(),
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._log = log
        self._now = now
        self._elapsed = elapsed
        self._offset: float | None = None  # from `elapsed` to the time of the newest record
        self._agreed = True

    def landed(self, newest: int | None) -> None:
        """Learns that a batch has landed whose latest timestamp (ms) is `newest`; None: it had no event."""
        if newest is not None:
            self._offset = newest / 1000 - self._elapsed()

    def agree(self) -> bool:
        """Returns whether rows and files may be deleted by their age: not before an event has landed."""
        if self._offset is None:
            return False
        ahead = self._now() - self._elapsed() - self._offset
        agreed = abs(ahead) <= TOLERANCE
        self._metrics.clock_ahead.set(ahead)
        self._metrics.clocks_disagree.set(not agreed)
        if agreed != self._agreed:
            self._log.warning("clocks agree" if agreed else "clocks disagree", ahead=ahead)
        self._agreed = agreed
        return agreed
