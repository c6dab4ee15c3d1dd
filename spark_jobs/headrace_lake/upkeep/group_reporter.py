"""Commits the landed offsets to a consumer group, and measures the lag, and how far retention is from unlanded records.

Landing does not depend on this: a failure is logged once, counted, and tried again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from headrace_common.operations.log import Log

from headrace_lake.kafka.source import Brokers, TopicPartition
from headrace_lake.spark.halt import HaltError, KafkaAwayError
from headrace_lake.upkeep.metrics import LakeMetrics

_EVERY: Final = 10.0  # seconds between two reports


class GroupReporter:
    """Reports to the consumer group, and measures lag and margins. One thread calls `landed`, one the rest.

    `group`: the consumer group's name; empty: no offsets are committed.
    """

    def __init__(self, brokers: Brokers, *, group: str, metrics: LakeMetrics, log: Log) -> None:
        self._brokers = brokers
        self._group: Final = group
        self._metrics = metrics
        self._log = log
        self._ends: Mapping[TopicPartition, int] = {}  # never changed, but replaced
        self._committed: Mapping[TopicPartition, int] = self._ends
        self._next = 0.0
        self._failing = False

    def landed(self, ends: Mapping[TopicPartition, int]) -> None:
        """Learns that everything before `ends` has landed."""
        self._ends = {**self._ends, **ends}

    def run_due(self) -> None:
        """Reports if it is due. Blocks for answers of Kafka."""
        if time.monotonic() >= self._next:
            self.report()

    def report(self) -> None:
        """Measures the lag, and commits the last offsets. Blocks for answers of Kafka."""
        ends, failing = self._ends, self._failing
        try:
            self._measure_lag(ends)
            if self._group and ends is not self._committed:
                self._brokers.commit(self._group, ends)
                self._committed = ends
            self._failing = False
        except (KafkaAwayError, HaltError) as error:
            self._metrics.lag_offsets.clear()  # unknown is not 0
            self._metrics.group_failures.inc()
            self._failing = True
            if not failing:
                self._log.warning("reporting failed", reason=str(error))
        self._next = time.monotonic() + _EVERY

    def _measure_lag(self, ends: Mapping[TopicPartition, int]) -> None:
        if not ends:
            return
        first = self._brokers.offsets(ends, earliest=True)
        # also records that an open transaction hides: a job that waits for its end is behind
        last = self._brokers.offsets(ends, earliest=False, committed=False)
        for pair, end in ends.items():
            place = pair[0], str(pair[1])
            self._metrics.lag_offsets.labels(*place).set(max(0, last[pair] - end))
            self._metrics.retention_margin_offsets.labels(*place).set(max(0, end - first[pair]))
