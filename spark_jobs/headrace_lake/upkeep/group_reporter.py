"""Commits the landed offsets to a consumer group, measures the lag, and how soon retention would delete unlanded records.

Landing does not depend on this: a failure is logged once, counted, and tried again.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from headrace_common.operations.log import Log
from headrace_common.operations.settings import KafkaSettings
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from headrace_lake.kafka.source import TopicPartition, client_options, listed
from headrace_lake.spark.causes import chain, root_cause
from headrace_lake.spark.jvm import java_class
from headrace_lake.upkeep.metrics import LakeMetrics

_ANSWER_TIME: Final = 5  # seconds to wait for one answer of the brokers
_COMMIT: Final = 1.0  # seconds between two commits of the group's offsets
_LAG: Final = 5.0  # seconds between two looks at the partitions' ends
_LOOK: Final = 30.0  # seconds between two looks at the margins
_CONFIG_LOOK: Final = 600.0  # seconds between two looks at the topics' retention
_PROBES: Final = 5.0  # seconds for the records that one look reads; the rest waits for the next look
_LOW: Final = 0.1  # share of the retention; a margin below it is logged
_LOW_SAID: Final = 600.0  # seconds between two such lines
_DURATION: Final = "java.time.Duration"
_TOPIC_PARTITION: Final = "org.apache.kafka.common.TopicPartition"
_CONFIG_RESOURCE: Final = "org.apache.kafka.common.config.ConfigResource"
_BYTES: Final = "org.apache.kafka.common.serialization.ByteArrayDeserializer"


class GroupReporter:
    """Reports to the consumer group, and measures lag and margins. Any thread may call `landed`, one thread the rest.

    `group`: the consumer group's name; empty: no offsets are committed.
    """

    def __init__(
        self, spark: SparkSession, settings: KafkaSettings, *, group: str, metrics: LakeMetrics, log: Log
    ) -> None:
        self._class = partial(java_class, spark)
        self._options = client_options(settings)
        self._topics: Final = (settings.events_topic, settings.quarantine_topic)
        self._group: Final = group
        self._metrics = metrics
        self._log = log
        self._lock = threading.Lock()
        self._ends: dict[TopicPartition, int] = {}
        self._uncommitted: dict[TopicPartition, int] = {}
        self._lag: dict[TopicPartition, int] = {}
        self._retention: dict[str, float] = {}  # topic -> seconds; infinite if age deletes nothing
        self._next: dict[str, float] = {}
        self._trouble: dict[str, str] = {}
        self._admin: Any = None
        self._consumer: Any = None
        self._first = 0  # rotates which partition is asked first

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
        """Does the tasks that are due. Blocks for a few seconds at most."""
        self._every(_COMMIT, "committing the group's offsets", self._commit)
        self._every(_LAG, "measuring the lag", self._measure_lag)
        self._every(_CONFIG_LOOK, "reading the topics' retention", self._ask_retention)
        if self._lag:
            self._every(_LOOK, "measuring the margin to retention", self._look)

    def finish(self) -> None:
        """Commits the last offsets, measures the lag once more and closes the connections. Blocks for a few seconds at most."""
        self._every(0, "committing the group's offsets", self._commit)
        self._every(0, "measuring the lag", self._measure_lag)
        second = self._class(_DURATION).ofSeconds(1)
        for client in (self._admin, self._consumer):
            if client is not None:
                client.close(second)
        self._admin = self._consumer = None

    def _every(self, interval: float, what: str, act: Callable[[], None]) -> None:
        now = time.monotonic()
        if now < self._next.get(what, 0) and interval:
            return
        try:
            act()
        except Py4JError as error:
            why = root_cause(error)
            self._next[what] = time.monotonic() + max(interval, _ANSWER_TIME)
            if act == self._commit:
                self._metrics.group_failures.inc()
            elif act == self._measure_lag:  # unknown is not 0
                self._lag = {}
                self._metrics.lag_offsets.clear()
            if self._trouble.get(what) != why:
                self._log.warning("reporting failed", what=what, reason=why)
                self._trouble[what] = why
            return
        self._next[what] = time.monotonic() + interval
        if self._trouble.pop(what, None) is not None:
            self._log.info("reporting works again", what=what)

    def _commit(self) -> None:
        with self._lock:
            ends = dict(self._uncommitted)
        if not ends or not self._group:
            return
        place, following = (
            self._class(_TOPIC_PARTITION),
            self._class("org.apache.kafka.clients.consumer.OffsetAndMetadata"),
        )
        offsets = self._hash_map(())
        for pair, end in ends.items():
            offsets.put(place(*pair), following(end))
        self._wait(self._client().alterConsumerGroupOffsets(self._group, offsets).all())
        with self._lock:
            self._uncommitted = {pair: end for pair, end in self._uncommitted.items() if ends.get(pair) != end}

    def _ask_retention(self) -> None:
        kind = self._class(f"{_CONFIG_RESOURCE}$Type").TOPIC
        wanted = {name: self._class(_CONFIG_RESOURCE)(kind, name) for name in self._topics}
        answers = self._client().describeConfigs(self._list(wanted.values())).values()
        for name, resource in wanted.items():
            entry = self._wait(answers.get(resource)).get("retention.ms")
            if entry is None or entry.value() is None:  # brokers that only claim to be Kafka
                self._retention.pop(name, None)
                continue
            milliseconds = int(entry.value())
            self._retention[name] = milliseconds / 1000 if milliseconds >= 0 else math.inf

    def _measure_lag(self) -> None:
        with self._lock:
            ends = dict(self._ends)
        # also records that an open transaction hides: a job that waits for its end is behind
        there = self._offsets("latest", ends, committed=False)
        lag = {pair: max(0, end - ends[pair]) for pair, end in there.items()}
        for pair, offsets in lag.items():
            self._metrics.lag_offsets.labels(pair[0], str(pair[1])).set(offsets)
        self._lag = lag

    def _look(self) -> None:
        with self._lock:
            ends = dict(self._ends)
        for pair, first in self._offsets("earliest", ends).items():
            self._metrics.retention_margin_offsets.labels(pair[0], str(pair[1])).set(max(0, ends[pair] - first))
        until = time.monotonic() + _PROBES
        partitions = sorted(pair for pair in ends if pair[0] in self._retention)
        cut = self._first % len(partitions) if partitions else 0
        for pair in partitions[cut:] + partitions[:cut]:
            retention = self._retention[pair[0]]
            margin: float | None = retention
            if self._lag.get(pair) and retention < math.inf:
                if time.monotonic() > until:
                    return
                margin = self._margin(pair, ends[pair], retention)
                self._first += 1
            if margin is not None:
                self._metrics.retention_margin.labels(pair[0], str(pair[1])).set(margin)
                if margin < retention * _LOW:
                    self._say_low(pair, margin)

    def _margin(self, pair: TopicPartition, offset: int, retention: float) -> float | None:
        """Returns the seconds until Kafka may delete the record at `offset`; None if it could not be read in time."""
        if self._consumer is None:
            options = self._hash_map(self._options.items())
            for name in ("key.deserializer", "value.deserializer"):
                options.put(name, _BYTES)
            options.put("enable.auto.commit", "false")
            options.put("auto.offset.reset", "none")
            options.put("isolation.level", "read_committed")
            options.put("max.poll.records", "1")
            options.put("max.partition.fetch.bytes", "1")  # Kafka sends at least one batch
            self._consumer = self._class("org.apache.kafka.clients.consumer.KafkaConsumer")(options)
        partition = self._class(_TOPIC_PARTITION)(*pair)
        self._consumer.assign(self._list([partition]))
        self._consumer.seek(partition, offset)
        try:
            records = self._consumer.poll(self._class(_DURATION).ofSeconds(1))
        except Py4JJavaError as error:
            if "OffsetOutOfRange" in " ".join(chain(error)):  # Kafka has deleted it: the job stops at its next batch
                return 0.0
            raise
        if records.isEmpty():
            return None
        return max(0.0, float(records.iterator().next().timestamp()) / 1000 + retention - time.time())

    def _offsets(
        self, which: str, pairs: Iterable[TopicPartition], *, committed: bool = True
    ) -> dict[TopicPartition, int]:
        """Returns each partition's ``earliest`` or ``latest`` offset; `committed`: as a reader of committed records sees it."""
        place = self._class(_TOPIC_PARTITION)
        spec = getattr(self._class("org.apache.kafka.clients.admin.OffsetSpec"), which)()
        levels = self._class("org.apache.kafka.common.IsolationLevel")
        level = levels.READ_COMMITTED if committed else levels.READ_UNCOMMITTED
        options = self._class("org.apache.kafka.clients.admin.ListOffsetsOptions")(level)
        wanted = self._hash_map((place(*pair), spec) for pair in pairs)
        found = listed(self._wait(self._client().listOffsets(wanted, options).all()))
        return {pair: offset for pair, (offset, _) in found.items()}

    def _say_low(self, pair: TopicPartition, margin: float) -> None:
        if time.monotonic() < self._next.get("low", 0):
            return
        self._next["low"] = time.monotonic() + _LOW_SAID
        self._log.warning(
            "retention is about to overtake the job", topic=pair[0], partition=pair[1], seconds=round(margin)
        )

    def _client(self) -> Any:
        if self._admin is None:
            options = self._hash_map(self._options.items())
            self._admin = self._class("org.apache.kafka.clients.admin.AdminClient").create(options)
        return self._admin

    def _wait(self, future: Any) -> Any:
        return future.get(_ANSWER_TIME, self._class("java.util.concurrent.TimeUnit").SECONDS)

    def _hash_map(self, values: Iterable[tuple[Any, Any]]) -> Any:
        made = self._class("java.util.HashMap")()
        for name, value in values:
            made.put(name, value)
        return made

    def _list(self, values: Any) -> Any:
        made = self._class("java.util.ArrayList")()
        for value in values:
            made.add(value)
        return made
