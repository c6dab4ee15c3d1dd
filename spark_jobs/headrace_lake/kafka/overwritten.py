"""Finds offsets that mean other records by now than those that landed: the brokers lost some, and stored others in their place.

That happens where Kafka's data is restored from an older copy, or an unclean election loses the end of a partition. While the
topic is shorter than the tables, `gaps` reports it. Once it has grown again, only the records show it: one that is later than the
landing of its offset replaced another, unless its receiver's clock is ahead. Whether it did, its row tells. Unnoticed if, at the
landing, the job's clock was ahead by more than the time until the other record came.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headrace_common.operations.settings import KafkaSettings
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headrace_lake.kafka.source import Brokers, TopicInfo, TopicPartition, range_options
from headrace_lake.kafka.start import EndOffsets, Position, first_few
from headrace_lake.spark.halt import HaltError
from headrace_lake.tables.layout import EVENTS, QUARANTINE
from headrace_lake.tables.on_spark import Span, Tables, within

_LOOK: Final = 1000
"""Offsets before the end of the landed ones in which a row is looked for: resends, for example, leave none."""

_PLACE: Final = ("topic_id", "partition")


def check(
    tables: Tables,
    kafka: KafkaSettings,
    brokers: Brokers,
    topics: Mapping[str, TopicInfo],
    position: Position,
) -> None:
    """Raises `HaltError` if the last record that landed of a partition is another one in Kafka. Blocks: asks Kafka
    once for each time at which a partition landed last, and makes two queries if a record is later than its landing.

    A record that Kafka deleted since, or that left no row, is not compared.
    """
    later = _with_later_records(brokers, position)
    if not later:
        return
    rows = _last_rows(tables, topics, later)
    first = brokers.offsets(rows, earliest=True)
    ranges = {place: (offset, offset + 1) for place, (offset, _) in rows.items() if first[place] <= offset}
    if not ranges:
        return
    records = tables.spark.read.format("kafka").options(**range_options(kafka, ranges)).load()
    there = {
        (topic, number): stamp
        for topic, number, stamp in records.select("topic", "partition", sf.unix_millis("timestamp")).collect()
    }
    wrong = [
        f"{topic}/{number}: offset {rows[topic, number][0]}"
        for (topic, number), stamp in sorted(there.items())
        if stamp != rows[topic, number][1]
    ]
    if wrong:
        raise HaltError(
            f"Kafka holds other records than those that landed: {first_few(wrong)}. It lost some, and stored others under their"
            " offsets"
        )


def _with_later_records(brokers: Brokers, position: Position) -> EndOffsets:
    """Returns the ends of the partitions where Kafka holds a record below the end that is later than its landing."""
    by_time: dict[int, list[TopicPartition]] = {}
    for pair, landed_at in position.landed_at.items():
        by_time.setdefault(landed_at, []).append(pair)
    later: EndOffsets = {}
    for landed_at, pairs in by_time.items():
        found = brokers.offsets_since(pairs, landed_at + 1)
        for pair, first in found.items():
            if first is not None and first < position.landed[pair]:
                later[pair] = position.landed[pair]
    return later


def _last_rows(
    tables: Tables, topics: Mapping[str, TopicInfo], landed: EndOffsets
) -> dict[tuple[str, int], tuple[int, int]]:
    """Returns, by partition, the offset and Kafka's timestamp, in ms, of the last row that landed from it, if any."""
    names = {topic.id: name for name, topic in topics.items()}
    inside = within(Span(topics[name].id, number, max(0, end - _LOOK), end) for (name, number), end in landed.items())

    def rows(table: str) -> DataFrame:
        read = tables.read(table).where(inside).where("received_time is not null")
        return read.select(*_PLACE, "offset", sf.unix_millis("received_time").alias("stamp"))

    last = rows(EVENTS).unionAll(rows(QUARANTINE)).groupBy(*_PLACE)
    found = last.agg(sf.max("offset"), sf.max_by("stamp", "offset")).collect()
    return {(names[topic_id], number): (offset, stamp) for topic_id, number, offset, stamp in found}
