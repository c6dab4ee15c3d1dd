"""The part of the proof that only Kafka can give: where its partitions end, and what its records hold."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import duckdb
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError
from headrace_common.kafka.client import consuming, explain
from headrace_common.operations.errors import CommandError
from headrace_common.operations.settings import KafkaSettings
from headrace_common.record.contract import GapReason

from headrace_reader.address import LakeAddress
from headrace_reader.proof import ENDS, judged
from headrace_reader.tables import Row, connect, rows
from headrace_reader.topic_ids import known_topics

Place = tuple[str, str, int]
"""A topic, its id in Kafka, and a partition."""

LANDED: Final = f"""
    select topic, topic_id, "partition", landed_to from ({ENDS}) join (select distinct topic, topic_id from batches)
    using (topic_id) where topic_id not in (select topic_id from gaps where reason = '{GapReason.RECREATED}')"""  # noqa: S608
"""Where the tables end in each partition of the topics that were not given up."""

_ROWS: Final = """
    select "offset", event_id, coalesce(payload, encode(body)) as value from events
    where topic_id = '{topic_id}' and "partition" = {partition} and "offset" between {first} and {last}
    union all select "offset", null, raw from quarantine
    where topic_id = '{topic_id}' and "partition" = {partition} and "offset" between {first} and {last}"""
_AT_ONCE: Final = 10_000
"""Records that are compared together."""
_PATIENCE: Final = 5_000
"""Milliseconds to wait for a record."""


def checks(settings: KafkaSettings, lake: LakeAddress, *, content: bool = False) -> list[Row]:
    """Compares the tables with Kafka: returns the rows of `compare`.

    With `content` also compares each record that Kafka still holds with its row, byte for byte: a row for the check, and one for
    how many. A record without a row is a matter of the proof. Raises `CommandError` if Kafka does not answer.
    """
    with connect(lake) as connection:
        try:
            return asyncio.run(_checks(settings, connection, content))
        except (KafkaError, OSError) as error:
            raise CommandError(f"Kafka at {settings.bootstrap_servers}: {explain(error)}") from error


async def _checks(settings: KafkaSettings, connection: duckdb.DuckDBPyConnection, content: bool) -> list[Row]:
    landed = {(row["topic"], row["topic_id"], row["partition"]): row["landed_to"] for row in rows(connection, LANDED)}
    names = {settings.events_topic, settings.quarantine_topic, *(topic for topic, _, _ in landed)}
    there = {
        (name, topic.id, number): TopicPartition(name, number)
        for name, topic in (await known_topics(settings, names)).items()
        for number in topic.partitions
    }
    async with consuming(settings) as consumer:
        first = await consumer.beginning_offsets([*there.values()])
        end = await consumer.end_offsets([*there.values()])
        found = compare(landed, {place: (first[at], end[at]) for place, at in there.items()})
        if content:
            ends = {place: landed[place] for place in sorted(landed.keys() & there.keys())}
            compared, wrong = await _differing(consumer, connection, ends)
            found.append(judged("each row holds what Kafka has at its place", wrong))
            found.append({"check": "compared with Kafka", "ok": True, "detail": f"{compared} records"})
        return found


def compare(landed: Mapping[Place, int], offsets: Mapping[Place, tuple[int, int]]) -> list[Row]:
    """Compares where the tables end with the first offsets and the ends of Kafka's partitions: a row for each check, and one for
    the backlog.
    """
    beyond = [
        {
            "topic": place[0],
            "partition": place[2],
            "landed_to": to,
            "kafka_ends_at": offsets.get(place, (None, None))[1],
        }
        for place, to in sorted(landed.items())
        if place not in offsets or to > offsets[place][1]
    ]
    lost = [
        {"topic": place[0], "partition": place[2], "landed_to": landed[place], "kafka_begins_at": first}
        for place, (first, _) in sorted(offsets.items())
        if place in landed and first > landed[place]
    ]
    left = [end - max(first, landed.get(place, first)) for place, (first, end) in offsets.items()]
    detail = f"{sum(count for count in left if count > 0)} offsets are not landed yet"
    return [
        judged("no partition was landed beyond its end in Kafka", beyond),
        judged("Kafka deleted nothing before it was landed", lost),
        {"check": "what Kafka holds besides", "ok": True, "detail": detail},
    ]


async def _differing(
    consumer: AIOKafkaConsumer, connection: duckdb.DuckDBPyConnection, ends: Mapping[Place, int]
) -> tuple[int, list[Row]]:
    """Returns how many rows before `ends` were compared, and the places of those that differ."""
    compared, wrong = 0, list[Row]()
    for (topic, topic_id, partition), landed_to in ends.items():
        place = TopicPartition(topic, partition)
        consumer.assign([place])
        consumer.seek(place, (await consumer.beginning_offsets([place]))[place])
        end = min(landed_to, (await consumer.end_offsets([place]))[place])
        while (at := await consumer.position(place)) < end:
            records = (await consumer.getmany(place, timeout_ms=_PATIENCE, max_records=_AT_ONCE)).get(place, [])
            to = min(end, await consumer.position(place))  # beyond the last record may be the ends of transactions
            if to == at:
                raise CommandError(f"Kafka does not send what it holds of {topic}/{partition} from {at} on.")
            there = {record.offset: record for record in records}
            found = rows(connection, _ROWS.format(topic_id=topic_id, partition=partition, first=at, last=to - 1))
            compared += len(found)
            wrong += [
                {"topic": topic, "partition": partition, "offset": row["offset"]}
                for row in found
                if not _same(row, there.get(row["offset"]))
            ]
    return compared, wrong


def _same(row: Row, record: ConsumerRecord[Any, Any] | None) -> bool:
    if record is None:
        return False
    named = row["event_id"] is None or dict(record.headers).get("ce_id") == row["event_id"].encode()
    return bool(named and row["value"] == record.value)
