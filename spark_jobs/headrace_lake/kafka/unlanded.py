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

_LOOK: Final = 1000
"""Offsets in which a partition's first record is looked for: after an aborted transaction, or compaction, some have none."""


FirstTimes = Callable[[Mapping[TopicPartition, tuple[int, int]]], Mapping[TopicPartition, int]]
"""Returns the timestamp, in ms, of the first record in each range of offsets; a range may have none."""


def oldest_to_come(
    brokers: Brokers, pairs: Iterable[TopicPartition], landed: EndOffsets, newest: int, first_times: FirstTimes
) -> int:
    """Returns the Kafka timestamp, in ms, of the oldest record that may come yet. Blocks; raises `KafkaAwayError`.

    `pairs`: all partitions of the events topic; `newest`: the latest timestamp that has landed, in ms.

    Of a partition with more records it is that of the first; 0 if none is found. Of one that was read to its end it is the
    present: the earlier of the job's clock and `newest`, so that one wrong clock does no harm. A receiver may store a record
    later, by at most `KAFKA__ACK_DEADLINE`.
    """
    first, ends = brokers.offsets(pairs, earliest=True), brokers.offsets(pairs, earliest=False)
    following = {pair: max(landed.get(pair, start), start) for pair, start in first.items()}
    ranges = {pair: (at, min(at + _LOOK, ends[pair])) for pair, at in following.items() if at < ends[pair]}
    times = first_times(ranges) if ranges else {}
    return min([int(time.time() * 1000), newest, *(times.get(pair, 0) for pair in ranges)])


def first_times(
    spark: SparkSession, kafka: KafkaSettings, ranges: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int]:
    """Asks Spark for `FirstTimes`."""
    records = spark.read.format("kafka").options(**range_options(kafka, ranges)).load()
    first = sf.min_by(sf.unix_millis("timestamp"), sf.col("offset"))
    return {(row[0], row[1]): row[2] for row in records.groupBy("topic", "partition").agg(first).collect()}
