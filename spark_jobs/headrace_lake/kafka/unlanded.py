"""How old the records are that have not landed, by Kafka's timestamps: the ids of what they may repeat must be known."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from headrace_common.operations.settings import KafkaSettings
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from headrace_lake.kafka.source import Brokers, range_options

_SPAN: Final = 1000
"""A partition's first record is looked for at its first offset, then in this many, then in this many times more, and so on."""

_FETCHED: Final = str(16 << 10)
"""Bytes that a broker sends of a partition at once. The first batch comes whole, however large it is."""


def oldest(spark: SparkSession, brokers: Brokers, kafka: KafkaSettings, next_offsets: Mapping[int, int]) -> int:
    """Returns the earliest Kafka timestamp, in ms, that a record of the events topic from `next_offsets` on is expected to have,
    by partition the offset that lands next. Blocks; raises `KafkaAwayError`.

    Of a partition with more records it is that of the first; of one that was read to its end it is the present: the earliest of
    the job's clock, the clock of Kafka's controller if it tells it, and the newest record's timestamp, so that one wrong clock
    does no harm. A receiver may store a record later, by at most `KAFKA__ACK_DEADLINE`.
    """
    pairs = [(kafka.events_topic, number) for number in next_offsets]
    found = [_now(), *(told for told in (brokers.time(), brokers.newest(pairs)) if told is not None)]
    ends = {number: end for (_, number), end in brokers.offsets(pairs, earliest=False).items()}
    starts = {number: start for number, start in next_offsets.items() if start < ends[number]}
    span = 1
    while starts:
        ranges = {number: (start, min(start + span, ends[number])) for number, start in starts.items()}
        times = _first_times(spark, kafka, ranges)
        found += times.values()
        starts = {number: end for number, (_, end) in ranges.items() if number not in times and end < ends[number]}
        span *= _SPAN
    return min(found)


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
