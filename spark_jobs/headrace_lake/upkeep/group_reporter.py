"""Commits the landed offsets to a consumer group, and measures the lag, and how far retention is from unlanded records.

Landing does not depend on this: a failure is logged once, counted, and tried again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from headrace_common.operations.log import Log

from headrace_lake.kafka.source import Brokers, TopicPartition
from headrace_lake.spark.halt import HaltError, KafkaAwayError
from headrace_lake.upkeep.metrics import LakeMetrics

_ANSWER_TIME: Final = 5  # seconds to wait for an answer, and after a failure: the main loop waits meanwhile
_COMMIT: Final = 1.0  # seconds between two commits of the group's offsets
_LAG: Final = 5.0  # seconds between two looks at the partitions' ends


class GroupReporter:
    """Reports to the consumer group, and measures lag and margins. Any thread may call `landed`, one thread the rest.

    `group`: the consumer group's name; empty: no offsets are committed.
    """

    def __init__(self, brokers: Brokers, *, group: str, metrics: LakeMetrics, log: Log) -> None:
        self._brokers = brokers
        self._group: Final = group
        self._metrics = metrics
        self._log = log
        self._lock = threading.Lock()
        self._ends: dict[TopicPartition, int] = {}
        self._uncommitted: dict[TopicPartition, int] = {}
        self._next: dict[str, float] = {}
        self._trouble: dict[str, str] = {}

    def landed(self, ends: Mapping[TopicPartition, int]) -> None:
        """Learns that everything before `ends` has landed."""
        with self._lock:
            self._ends |= ends
            self._uncommitted |= ends

    def reached(self, ends: Mapping[TopicPartition, int]) -> None:
        """Learns that the query is at `ends`. The group's offsets stay as they are: a partition without a record is
        among these.
        """
        with self._lock:
            self._ends |= ends

    def run_due(self) -> None:
        """Does the tasks that are due. Blocks for answers of Kafka."""
        self._every(_COMMIT, "committing the group's offsets", self._commit)
        self._every(_LAG, "measuring the lag", self._measure_lag)

    def finish(self) -> None:
        """Commits the last offsets, and measures the lag once more. Blocks for answers of Kafka."""
        self._every(0, "committing the group's offsets", self._commit)
        self._every(0, "measuring the lag", self._measure_lag)

    def _every(self, interval: float, what: str, act: Callable[[], None]) -> None:
        now = time.monotonic()
        if now < self._next.get(what, 0) and interval:
            return
        try:
            act()
        except (KafkaAwayError, HaltError) as error:
            self._next[what] = time.monotonic() + max(interval, _ANSWER_TIME)
            if act == self._commit:
                self._metrics.group_failures.inc()
            else:  # unknown is not 0
                self._metrics.lag_offsets.clear()
            if self._trouble.get(what) != str(error):
                self._log.warning("reporting failed", what=what, reason=str(error))
                self._trouble[what] = str(error)
            return
        self._next[what] = time.monotonic() + interval
        if self._trouble.pop(what, None) is not None:
            self._log.info("reporting works again", what=what)

    def _commit(self) -> None:
        with self._lock:
            ends = dict(self._uncommitted)
        if not ends or not self._group:
            return
        self._brokers.commit(self._group, ends, patience=_ANSWER_TIME)
        with self._lock:
            self._uncommitted = {pair: end for pair, end in self._uncommitted.items() if ends.get(pair) != end}

    def _measure_lag(self) -> None:
        with self._lock:
            ends = dict(self._ends)
        if not ends:
            return
        first = self._brokers.offsets(ends, earliest=True, patience=_ANSWER_TIME)
        # also records that an open transaction hides: a job that waits for its end is behind
        last = self._brokers.offsets(ends, earliest=False, committed=False, patience=_ANSWER_TIME)
        for pair, end in ends.items():
            place = pair[0], str(pair[1])
            self._metrics.lag_offsets.labels(*place).set(max(0, last[pair] - end))
            self._metrics.retention_margin_offsets.labels(*place).set(max(0, end - first[pair]))
