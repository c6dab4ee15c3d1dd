"""How far each partition of the events topic has got, in Kafka's timestamps: by that, not by the clock on the wall, ids expire.

A partition's clock is the latest timestamp that has landed of it; that of a partition which is read to its end is the time
when its end was asked for. The slowest clock is the low water: no record is expected to land with an earlier timestamp, but
for those that a receiver could not get rid of at once (`KAFKA__ACK_DEADLINE`: the slack that callers add).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from headrace_common.settings import KafkaSettings
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from headrace_lake.source import Brokers, range_options

_SPAN: Final = 1000
"""Offsets among which the first record of a partition is looked for; where there is none, in so many times more."""


class Clocks:
    """The clocks of one topic. Times are Unix times in milliseconds."""

    def __init__(self, brokers: Brokers, topic: str, following: Mapping[int, int]) -> None:
        """`following`: partition -> the offset that is landed next."""
        self._brokers = brokers
        self._topic = topic
        self._following = dict(following)
        self._clocks: dict[int, int] = {}
        self._asked = 0
        self._ends: dict[int, int] = {}

    def ask(self) -> None:
        """Asks Kafka where the partitions end. Blocks; raises `KafkaAwayError`."""
        now = _now()
        ends = self._brokers.offsets([(self._topic, number) for number in self._following], earliest=False)
        self._asked, self._ends = now, {number: end for (_, number), end in ends.items()}
        self._read_to_the_end()

    def landed(self, following: Mapping[int, int], latest: Mapping[int, int]) -> None:
        """A batch is in the tables: where it ends, and the latest timestamp that it had, by partition."""
        self._following |= following
        for number, stamp in latest.items():
            self._tick(number, min(stamp, self._asked))  # a sender's clock may be ahead, ours is not
        self._read_to_the_end()

    def unknown(self) -> dict[int, int]:
        """Partitions without a clock: nothing of them has landed, or not by this job; -> their next offset."""
        return {number: offset for number, offset in self._following.items() if number not in self._clocks}

    def begin_at(self, first: Mapping[int, int]) -> None:
        """The timestamps of the first records of `unknown` partitions."""
        for number, stamp in first.items():
            self._tick(number, stamp)

    def end(self, number: int) -> int:
        """Where the partition ended when Kafka was asked."""
        return self._ends[number]

    def low_water(self) -> int | None:
        """The slowest clock; None as long as one is not known."""
        return None if self.unknown() else min(self._clocks.values(), default=None)

    def _read_to_the_end(self) -> None:
        for number, end in self._ends.items():
            if self._following[number] >= end:
                self._tick(number, self._asked)

    def _tick(self, number: int, stamp: int) -> None:
        self._clocks[number] = max(self._clocks.get(number, stamp), stamp)


def at_start(spark: SparkSession, brokers: Brokers, kafka: KafkaSettings, following: Mapping[int, int]) -> Clocks:
    """Clocks that stand at the first record that has not landed, partition by partition. Blocks."""
    clocks = Clocks(brokers, kafka.events_topic, following)
    clocks.ask()
    span = _SPAN
    while unknown := clocks.unknown():
        ranges = {number: (start, min(start + span, clocks.end(number))) for number, start in unknown.items()}
        clocks.begin_at(_first_times(spark, kafka, ranges))
        empty = {number: end for number, (_, end) in ranges.items() if number in clocks.unknown()}
        clocks.landed(empty, {})
        span *= _SPAN
    return clocks


def _first_times(spark: SparkSession, kafka: KafkaSettings, ranges: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """The timestamp of the first record in each range; a range may have none."""
    options = range_options(kafka, {(kafka.events_topic, number): limits for number, limits in ranges.items()})
    records = spark.read.format("kafka").options(**options).load()
    first = sf.min_by(sf.unix_millis("timestamp"), sf.col("offset"))
    return {row[0]: row[1] for row in records.groupBy("partition").agg(first).collect()}


def _now() -> int:
    return int(time.time() * 1000)
