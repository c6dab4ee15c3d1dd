"""The part of the proof that only Kafka can give: where its partitions end, and what its records hold."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

import duckdb
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError
from headrace_common.kafka.client import consuming, explain
from headrace_common.operations.errors import CommandError
from headrace_common.operations.settings import KafkaSettings
from headrace_common.record.contract import GapReason

from headrace_reader.address import LakeAddress
from headrace_reader.proof import COVERED, judged
from headrace_reader.tables import Row, connect, rows
from headrace_reader.topic_ids import known_topics

Place = tuple[str, int]

LANDED: Final = f"""
    with newest as (
        select topic, arg_max(topic_id, epoch * 4294967296 + batch) as topic_id from batches
        where topic_id not in (select topic_id from gaps where reason = '{GapReason.RECREATED}') group by topic)
    select n.topic, topic_id, c."partition", max(c."to") as landed_to from newest n join ({COVERED}) c using (topic_id)
    group by all"""  # noqa: S608
"""(topic, topic_id, partition, landed_to) of the topics that were claimed last: aiokafka does not tell us the ids of topics."""


_ROWS: Final = """
    select "offset", event_id, coalesce(payload, encode(body)) as value from events
    where topic_id = '{topic_id}' and "partition" = {partition} and "offset" between {first} and {last}
    union all select "offset", null, raw from quarantine
    where topic_id = '{topic_id}' and "partition" = {partition} and "offset" between {first} and {last}"""
_AT_ONCE: Final = 10_000
"""Records that are compared together."""
_PATIENCE: Final = 5_000
"""Milliseconds to wait for a record."""


def held(settings: KafkaSettings, topics: Iterable[str]) -> dict[Place, tuple[int, int]]:
    """Asks Kafka for the first offset that each partition holds, and for its end; a topic that is not there has none.

    Raises `CommandError` if Kafka does not answer.
    """
    try:
        return asyncio.run(_held(settings, sorted(topics)))
    except (KafkaError, OSError) as error:
        raise CommandError(f"Kafka at {settings.bootstrap_servers}: {explain(error)}") from error


async def _held(settings: KafkaSettings, topics: list[str]) -> dict[Place, tuple[int, int]]:
    known = await known_topics(settings, topics)
    places = [TopicPartition(name, number) for name, topic in known.items() for number in topic.partitions]
    async with consuming(settings) as consumer:
        first, end = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
        return {(place.topic, place.partition): (first[place], end[place]) for place in places}


def compare(landed: Mapping[Place, int], offsets: Mapping[Place, tuple[int, int]]) -> list[Row]:
    """Compares where the tables end, by partition, with Kafka's offsets: one row for each check, and one for the backlog."""
    beyond = [
        {
            "topic": topic,
            "partition": number,
            "landed_to": end,
            "kafka_ends_at": offsets.get((topic, number), (None, None))[1],
        }
        for (topic, number), end in sorted(landed.items())
        if (topic, number) not in offsets or end > offsets[topic, number][1]
    ]
    lost = [
        {"topic": topic, "partition": number, "landed_to": landed[topic, number], "kafka_begins_at": first}
        for (topic, number), (first, _) in sorted(offsets.items())
        if (topic, number) in landed and first > landed[topic, number]
    ]
    left = {place: end - max(first, landed.get(place, first)) for place, (first, end) in offsets.items()}
    never = [
        f"{topic}/{number}"
        for (topic, number), count in sorted(left.items())
        if count and (topic, number) not in landed
    ]
    detail = f"{sum(count for count in left.values() if count > 0)} offsets are not landed yet"
    if never:
        detail += f"; nothing of {', '.join(never[:5])}{' and others' if len(never) > 5 else ''}"
    return [
        judged("no partition was landed beyond its end in Kafka", beyond),
        judged("Kafka deleted nothing before it was landed", lost),
        {"check": "what Kafka holds besides", "ok": True, "detail": detail},
    ]


def contents(settings: KafkaSettings, lake: LakeAddress | str) -> list[Row]:
    """Compares each record that Kafka still holds with its row, byte for byte: one row for the check, one for how many.

    A record without a row is a matter of the proof. Raises `CommandError` if Kafka does not answer.
    """
    with connect(lake) as connection:
        try:
            compared, wrong = asyncio.run(_differing(settings, connection))
        except (KafkaError, OSError) as error:
            raise CommandError(f"Kafka at {settings.bootstrap_servers}: {explain(error)}") from error
    found = {"check": "compared with Kafka", "ok": True, "detail": f"{compared} records"}
    return [judged("each row holds what Kafka has at its place", wrong), found]


async def _differing(settings: KafkaSettings, connection: duckdb.DuckDBPyConnection) -> tuple[int, list[Row]]:
    """Returns how many rows were compared, and the places of those that differ."""
    compared, wrong = 0, list[Row]()
    async with consuming(settings) as consumer:
        for line in rows(connection, LANDED):
            place = TopicPartition(line["topic"], line["partition"])
            consumer.assign([place])
            consumer.seek(place, (await consumer.beginning_offsets([place]))[place])
            end = min(line["landed_to"], (await consumer.end_offsets([place]))[place])
            while (at := await consumer.position(place)) < end:
                records = (await consumer.getmany(place, timeout_ms=_PATIENCE, max_records=_AT_ONCE)).get(place, [])
                to = min(end, await consumer.position(place))  # beyond the last record may be the ends of transactions
                if to == at:
                    raise CommandError(
                        f"Kafka does not send what it holds of {place.topic}/{place.partition} from {at} on."
                    )
                there = {record.offset: record for record in records}
                found = rows(connection, _ROWS.format(**line, first=at, last=to - 1))
                compared += len(found)
                wrong += [
                    {"topic": place.topic, "partition": place.partition, "offset": row["offset"]}
                    for row in found
                    if not _same(row, there.get(row["offset"]))
                ]
    return compared, wrong


def _same(row: Row, record: ConsumerRecord[Any, Any] | None) -> bool:
    if record is None:
        return False
    named = row["event_id"] is None or dict(record.headers).get("ce_id") == row["event_id"].encode()
    return bool(named and row["value"] == record.value)
