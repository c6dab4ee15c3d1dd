"""The watermark of the events topic, in Kafka's timestamps. Ids expire by it, not by wall-clock time.

A partition's watermark is the latest timestamp among the last records that have landed from it: seldom earlier than the latest
of all, and never later. If the partition was read to its end, it is the present when the job asked for that end. The topic's
watermark is the lowest of these: no record is expected to land with an earlier timestamp, except one that a receiver could not
store at once (at most `KAFKA__ACK_DEADLINE` late: callers add that).

The present is the earliest of three: the job's clock, the clock of Kafka's controller if it tells it, and the newest record's
timestamp. So one wrong clock never makes ids expire; a topic without new records keeps the ids that it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from headrace_common.operations.settings import KafkaSettings
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from headrace_lake.kafka.source import Brokers, range_options

_SPAN: Final = 1000
"""A partition's first record is looked for at its first offset, then in this many, then in this many times more, and so on."""

_FETCHED: Final = str(16 << 10)
"""Bytes that a broker sends of a partition at once. The first batch comes whole, however large it is."""


class Watermarks:
    """The watermarks of one topic's partitions. Times are Unix times in milliseconds."""

    def __init__(self, brokers: Brokers, topic: str, next_offsets: Mapping[int, int], newest: int | None) -> None:
        """`next_offsets`: partition -> the offset that lands next; `newest`: the latest timestamp of the topic's records."""
        self._brokers = brokers
        self._topic = topic
        self._next_offsets = dict(next_offsets)
        self._watermarks: dict[int, int] = {}
        self._newest = newest
        self._asked = 0  # the earlier of the two clocks when the ends were asked for
        self._ends: dict[int, int] = {}

    def ask(self) -> None:
        """Asks Kafka for the ends of the partitions. Blocks; raises `KafkaAwayError`."""
        kafka = self._brokers.time()
        now = _now() if kafka is None else min(_now(), kafka)
        ends = self._brokers.offsets([(self._topic, number) for number in self._next_offsets], earliest=False)
        self._asked, self._ends = now, {number: end for (_, number), end in ends.items()}
        self._read_to_the_end()

    def landed(self, next_offsets: Mapping[int, int], latest: Mapping[int, int]) -> None:
        """Learns that a batch is in the tables; by partition: the offset after it, and its latest timestamp."""
        self._next_offsets |= next_offsets
        for number, stamp in latest.items():
            self._newest = stamp if self._newest is None else max(self._newest, stamp)
            # a timestamp may be in the future: then the clocks count
            self._advance(number, min(stamp, self._asked))
        self._read_to_the_end()

    def unknown(self) -> dict[int, int]:
        """Returns the next offset by partition, of those without a watermark: this job has landed nothing from them."""
        return {number: offset for number, offset in self._next_offsets.items() if number not in self._watermarks}

    def start_at(self, first: Mapping[int, int]) -> None:
        """Sets the watermarks of `unknown` partitions: the timestamps of their first records."""
        for number, stamp in first.items():
            self._advance(number, min(stamp, self._asked))

    def end(self, number: int) -> int:
        """Returns the end of the partition in Kafka's last answer."""
        return self._ends[number]

    def watermark(self) -> int | None:
        """Returns the lowest watermark; None while a partition has none."""
        return None if self.unknown() else min(self._watermarks.values(), default=None)

    def at_end(self, number: int) -> bool:
        """Returns whether all that Kafka's last answer had of the partition has landed."""
        return self._next_offsets[number] >= self._ends[number]

    def _read_to_the_end(self) -> None:
        if self._newest is None:
            return
        present = min(self._asked, self._newest)
        for number in self._ends:
            if self.at_end(number):
                self._advance(number, present)

    def _advance(self, number: int, stamp: int) -> None:
        self._watermarks[number] = max(self._watermarks.get(number, stamp), stamp)


def at_start(
    spark: SparkSession,
    brokers: Brokers,
    kafka: KafkaSettings,
    next_offsets: Mapping[int, int],
    newest_landed: Callable[[], int | None],
) -> Watermarks:
    """Returns watermarks at the first record of each partition that has not landed. Blocks.

    `newest_landed` gives the latest timestamp in the events table: it is asked if Kafka has no record any more.
    """
    newest = brokers.newest([(kafka.events_topic, number) for number in next_offsets])
    watermarks = Watermarks(brokers, kafka.events_topic, next_offsets, newest_landed() if newest is None else newest)
    watermarks.ask()
    span = 1
    while unknown := {number: at for number, at in watermarks.unknown().items() if not watermarks.at_end(number)}:
        ranges = {number: (start, min(start + span, watermarks.end(number))) for number, start in unknown.items()}
        watermarks.start_at(_first_times(spark, kafka, ranges))
        empty = {number: end for number, (_, end) in ranges.items() if number in watermarks.unknown()}
        watermarks.landed(empty, {})
        span *= _SPAN
    return watermarks


def _first_times(spark: SparkSession, kafka: KafkaSettings, ranges: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """Returns the timestamp of the first record in each range; a range may have none."""
    options = range_options(kafka, {(kafka.events_topic, number): limits for number, limits in ranges.items()})
    # Spark keeps for minutes what a consumer has read ahead, of each partition.
    options["kafka.max.poll.records"] = str(min(500, max(end - start for start, end in ranges.values())))
    options["kafka.max.partition.fetch.bytes"] = _FETCHED
    records = spark.read.format("kafka").options(**options).load()
    first = sf.min_by(sf.unix_millis("timestamp"), sf.col("offset"))
    return {row[0]: row[1] for row in records.groupBy("partition").agg(first).collect()}


def _now() -> int:
    return int(time.time() * 1000)
