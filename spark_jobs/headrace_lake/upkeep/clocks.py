"""Decides whether the clocks around the job agree: only then may maintenance delete anything by time. `doubted` is pure.

Retention, vacuum and the clean-up of the log go by the job's own clock. A clock that is two years ahead would make them drop
every row. So another clock has to confirm it first: the clock of Kafka's controller or, without its answer, the timestamp of the
newest record that has landed. Nothing may lie in the clock's future, either.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Protocol

from headrace_common.operations.log import Log

from headrace_lake.spark.halt import KafkaAwayError
from headrace_lake.upkeep.metrics import LakeMetrics

TOLERANCE: Final = 300.0
"""Seconds by which clocks may differ. Hosts that ask for the time at all are within one, and days hardly notice it."""


class Witness(StrEnum):
    """A clock beside the job's own; a label in metrics."""

    KAFKA = "kafka"
    RECORD = "record"
    COMMIT = "commit"


@dataclass(frozen=True)
class Clocks:
    """Times in Unix seconds; None if unknown."""

    own: float
    kafka: float | None
    """Of Kafka's controller."""
    record: float | None
    """The latest timestamp in the last batch."""
    commit: float | None
    """The time of the last commit of any table, by any writer."""

    def ahead(self) -> dict[Witness, float]:
        """Returns by how many seconds the own clock is ahead of each that is known."""
        times = {Witness.KAFKA: self.kafka, Witness.RECORD: self.record, Witness.COMMIT: self.commit}
        return {witness: self.own - told for witness, told in times.items() if told is not None}


def doubted(clocks: Clocks) -> list[Witness]:
    """Returns the clocks that contradict the job's own, or do not confirm it though they should; empty: it may be believed.

    Records and commits may be old, because nothing came since. Where Kafka's clock is unknown, only a record of now confirms.
    """
    ahead = clocks.ahead()
    wrong = {witness for witness, seconds in ahead.items() if seconds < -TOLERANCE}
    confirming = Witness.RECORD if clocks.kafka is None else Witness.KAFKA
    if ahead.get(confirming, float("inf")) > TOLERANCE:
        wrong.add(confirming)
    return sorted(wrong)


class BrokerTime(Protocol):
    """A source of the time of Kafka's clock."""

    def time(self) -> int | None:
        """Returns Unix ms; None if unknown. Raises `KafkaAwayError`."""


class ClockGuard:
    """Looks at the clocks, and says once when they begin or cease to disagree. Any thread may call it."""

    def __init__(
        self, brokers: BrokerTime, metrics: LakeMetrics, log: Log, now: Callable[[], float] = lambda: time.time()
    ) -> None:
        self._brokers = brokers
        self._metrics = metrics
        self._log = log
        self._now = now
        self._record: float | None = None
        self._doubts: list[Witness] = []

    def landed(self, newest: int | None) -> None:
        """Learns that a batch has landed whose latest timestamp (ms) is `newest`; None: it had no event."""
        if newest is not None:
            self._record = newest / 1000

    def agree(self, commit: float | None) -> bool:
        """Returns whether rows and files may be deleted by their age. May block for an answer of Kafka."""
        try:
            kafka = self._brokers.time()
        except KafkaAwayError:
            kafka = None
        clocks = Clocks(self._now(), None if kafka is None else kafka / 1000, self._record, commit)
        for witness, seconds in clocks.ahead().items():
            self._metrics.clock_ahead.labels(witness).set(seconds)
        found = doubted(clocks)
        self._metrics.clocks_disagree.set(bool(found))
        if found != self._doubts:
            said = {name: _text(told) for name, told in vars(clocks).items()}
            if found:
                self._log.warning("clocks disagree", doubted=",".join(found), stopped="retain,vacuum,clean_log", **said)
            else:
                self._log.info("clocks agree", **said)
        self._doubts = found
        return not found


def _text(told: float | None) -> str | None:
    try:
        return None if told is None else f"{datetime.fromtimestamp(told, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError):  # beyond the year 9999
        return f"{told:.0f} s"
