"""Decides whether the job's clock is right: only then may maintenance delete anything by time.

Retention, vacuum and the clean-up of the log go by the job's own clock. A clock that is two years ahead would make them drop
every row. So one other clock has to confirm it: that of Kafka's controller or, without its answer, the timestamp of the newest
record that has landed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from headrace_common.operations.log import Log

from headrace_lake.spark.halt import KafkaAwayError
from headrace_lake.upkeep.metrics import LakeMetrics

TOLERANCE: Final = 300.0
"""Seconds by which clocks may differ. Hosts that ask for the time at all are within one, and days hardly notice it."""


class BrokerTime(Protocol):
    """A source of the time of Kafka's clock."""

    def time(self) -> int | None:
        """Returns Unix ms; None if unknown. Raises `KafkaAwayError`."""


class ClockGuard:
    """Compares the clocks, and says once when they begin or cease to disagree. Any thread may call it."""

    def __init__(
        self, brokers: BrokerTime, metrics: LakeMetrics, log: Log, now: Callable[[], float] = lambda: time.time()
    ) -> None:
        self._brokers = brokers
        self._metrics = metrics
        self._log = log
        self._now = now
        self._record: int | None = None
        self._agreed = True

    def landed(self, newest: int | None) -> None:
        """Learns that a batch has landed whose latest timestamp (ms) is `newest`; None: it had no event."""
        self._record = self._record if newest is None else newest

    def agree(self) -> bool:
        """Returns whether rows and files may be deleted by their age. May block for an answer of Kafka."""
        try:
            told = self._brokers.time()
        except KafkaAwayError:
            told = None
        told = self._record if told is None else told
        ahead = None if told is None else self._now() - told / 1000
        if ahead is not None:
            self._metrics.clock_ahead.set(ahead)
        agreed = ahead is not None and abs(ahead) <= TOLERANCE
        self._metrics.clocks_disagree.set(not agreed)
        if self._agreed and not agreed:
            self._log.warning("clocks disagree", ahead=ahead, stopped="retain,vacuum,clean_log")
        elif agreed and not self._agreed:
            self._log.info("clocks agree", ahead=ahead)
        self._agreed = agreed
        return agreed
