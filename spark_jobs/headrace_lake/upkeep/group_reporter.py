"""Commits the landed offsets to a consumer group, and measures the lag, and how far retention is from unlanded records.

Landing does not depend on this: a failure is logged once, counted, and tried again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Final

from headrace_common.operations.log import Log

from headrace_lake.kafka.source import Brokers, TopicPartition
from headrace_lake.spark.halt import HaltError, KafkaAwayError
from headrace_lake.upkeep.metrics import LakeMetrics

_ANSWER_TIME: Final = 5  # seconds to wait for an answer: the main loop waits meanwhile
_EVERY: Final = 5.0  # seconds between two reports


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
        self._next = 0.0
        self._trouble = ""

    def landed(self, ends: Mapping[TopicPartition, int]) -> None:
        """Learns that everything before `ends` has landed."""
        with self._lock:
            self._ends |= ends
            self._uncommitted |= ends

    def run_due(self) -> None:
        """Reports if it is due. Blocks for answers of Kafka."""
        if time.monotonic() >= self._next:
            self.report()

    def report(self) -> None:
        """Measures the lag, and commits the last offsets. Blocks for answers of Kafka."""
        trouble = ""
        try:
            self._measure_lag()
        except (KafkaAwayError, HaltError) as error:
            self._metrics.lag_offsets.clear()  # unknown is not 0
            trouble = str(error)
        try:
            self._commit()
        except (KafkaAwayError, HaltError) as error:
            self._metrics.group_failures.inc()
            trouble = str(error)
        if trouble and trouble != self._trouble:
            self._log.warning("reporting failed", reason=trouble)
        elif self._trouble and not trouble:
            self._log.info("reporting works again")
        self._trouble = trouble
        self._next = time.monotonic() + _EVERY

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
