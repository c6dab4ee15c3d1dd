"""How old the records are that have not landed, by Kafka's timestamps: the ids of what they may repeat must be known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from headrace_common.operations.settings import KafkaSettings
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from headrace_lake.kafka.source import Brokers, TopicPartition, range_options
from headrace_lake.kafka.start import EndOffsets

_SPAN: Final = 1000
"""A partition's first record is looked for at its first offset, then in this many, then in this many times more, and so on."""

_FETCHED: Final = str(16 << 10)
"""Bytes that a broker sends of a partition at once. The first batch comes whole, however large it is."""


FirstTimes = Callable[[Mapping[TopicPartition, tuple[int, int]]], Mapping[TopicPartition, int]]
"""Returns the timestamp, in ms, of the first record in each range of offsets; a range may have none."""


def ids_since(
    brokers: Brokers, pairs: Iterable[TopicPartition], landed: EndOffsets, reach: float, first_times: FirstTimes
) -> int:
    """Returns the Kafka timestamp, in ms, since which ids have to be known: records that repeat them may come yet.

    `pairs`: all partitions of the events topic; `reach`: seconds by which the event that a record repeats may be older. Blocks;
    raises `KafkaAwayError`.
    """
    first = brokers.offsets(pairs, earliest=True)
    following = {pair: max(landed.get(pair, start), start) for pair, start in first.items()}
    return oldest(brokers, following, first_times) - round(reach * 1000)


def oldest(brokers: Brokers, next_offsets: Mapping[TopicPartition, int], first_times: FirstTimes) -> int:
    """Returns the earliest Kafka timestamp, in ms, that a record from `next_offsets` on is expected to have.

    Of a partition with more records it is that of the first; of one that was read to its end it is the present: the earliest of
    the job's clock, the clock of Kafka's controller if it tells it, and the newest record's timestamp, so that one wrong clock
    does no harm. A receiver may store a record later, by at most `KAFKA__ACK_DEADLINE`.
    """
    now = int(time.time() * 1000)
    found = [now, *(told for told in (brokers.time(), brokers.newest(next_offsets)) if told is not None)]
    ends = brokers.offsets(next_offsets, earliest=False)
    starts = {pair: start for pair, start in next_offsets.items() if start < ends[pair]}
    span = 1
    while starts:
        ranges = {pair: (start, min(start + span, ends[pair])) for pair, start in starts.items()}
        times = first_times(ranges)
        found += times.values()
        starts = {pair: end for pair, (_, end) in ranges.items() if pair not in times and end < ends[pair]}
        span *= _SPAN
    return min(found)


def first_times(
    spark: SparkSession, kafka: KafkaSettings, ranges: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int]:
    """Asks Spark for `FirstTimes`."""
    options = range_options(kafka, ranges)
    # Spark keeps for minutes what a consumer has read ahead, of each partition.
    options["kafka.max.poll.records"] = str(min(500, max(end - start for start, end in ranges.values())))
    options["kafka.max.partition.fetch.bytes"] = _FETCHED
    records = spark.read.format("kafka").options(**options).load()
    first = sf.min_by(sf.unix_millis("timestamp"), sf.col("offset"))
    return {(row[0], row[1]): row[2] for row in records.groupBy("topic", "partition").agg(first).collect()}
