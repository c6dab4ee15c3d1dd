"""Follows one event by its id: from its record on Kafka to its row."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from headrace_common.kafka.client import describe, explain, make_consumer
from headrace_common.operations.errors import HeadraceError
from headrace_common.operations.settings import KafkaSettings

from headrace_cli.ground import CommandError
from headrace_cli.lake.address import LakeAddress
from headrace_cli.lake.text import printable
from headrace_cli.operating.live import tables
from headrace_cli.operating.target import check_reachable
from headrace_cli.operating.watch.records import Kept, Row, event, reject

ID: Final = re.compile(r"[ud]\.[0-9a-f]{32}")
NEWEST: Final = "newest"
"""Asks for the event that was stored last."""
RECORDS: Final = 200_000
"""Most records that are looked through on Kafka."""
SECONDS: Final = 20.0
"""Most time for that."""


@dataclass
class Way:
    """The places of the event. `record`: its place on Kafka; `row`: in the tables; `said`: what is not known, and why."""

    id: str
    record: Mapping[str, Any] | None = None
    row: Mapping[str, Any] | None = None
    said: list[str] = field(default_factory=list)


async def follow(identity: str, settings: KafkaSettings | None, lake: LakeAddress | None) -> Way:
    """Look in the tables first, then among what has not landed. Reads only; takes half a minute at most.

    Raises `CommandError` for what is no id.
    """
    if identity != NEWEST and ID.fullmatch(identity) is None:
        raise CommandError(
            "An id is d. or u. and 32 hex digits, as in column event_id and in what tap shows.", status=2
        )
    way = Way(identity)
    landed: Mapping[tuple[str, int], int] | None = None
    if lake is not None and identity != NEWEST:
        landed = await _in_tables(way, lake)
    elif lake is None:
        way.said.append("The tables cannot be read from here.")
    if settings is None:
        way.said.append("Kafka is not known here.")
        return way
    try:
        async with asyncio.timeout(SECONDS + 10):
            await _on_kafka(way, settings, landed)
    except (KafkaError, TimeoutError, HeadraceError) as error:
        way.said.append(f"Kafka: {explain(error) if isinstance(error, KafkaError) else error or 'it does not answer'}")
    if identity == NEWEST and lake is not None and way.record is not None:
        await _in_tables(way, lake)
    if way.record is not None and way.row is None and lake is not None:
        way.said.append("It is stored, and has not landed yet.")
    if way.record is None and way.row is None:
        way.said.append("It was not found: it never came, has another id, or Kafka has deleted it before it landed.")
    return way


async def _in_tables(way: Way, lake: LakeAddress) -> Mapping[tuple[str, int], int] | None:
    try:
        way.row = await asyncio.to_thread(tables.find, lake, way.id)
        return await asyncio.to_thread(tables.landed_to, lake) if way.row is None else None
    except CommandError as error:
        way.said.append(str(error))
        return None


async def _on_kafka(way: Way, settings: KafkaSettings, landed: Mapping[tuple[str, int], int] | None) -> None:
    await check_reachable(settings)
    topics = (await describe(settings))[:2]
    consumer = make_consumer(settings, auto_offset_reset="earliest", fetch_max_bytes=8 << 20)
    try:
        await consumer.start()
        if way.row is not None:
            await _at(way, consumer, TopicPartition(way.row["topic"], way.row["partition"]), way.row["offset"])
            return
        wanted = topics[:1] if way.id == NEWEST else topics
        places = [TopicPartition(topic.name, number) for topic in wanted for number in range(topic.partitions)]
        ends = await consumer.end_offsets(places)
        first = await consumer.beginning_offsets(places)
        share = 1 if way.id == NEWEST else RECORDS // len(places)
        begin = {
            place: max(first[place], (landed or {}).get((place.topic, place.partition), 0), ends[place] - share)
            for place in places
        }
        behind = [place for place in places if ends[place] > begin[place]]
        await _among(way, consumer, begin, {place: ends[place] for place in behind})
    finally:
        await consumer.stop()


async def _at(way: Way, consumer: AIOKafkaConsumer, place: TopicPartition, offset: int) -> None:
    consumer.assign([place])
    first = (await consumer.beginning_offsets([place]))[place]
    if offset < first:
        way.said.append("Kafka has deleted its record since it landed, as its retention says.")
        return
    consumer.seek(place, offset)
    async with asyncio.timeout(5):
        found = await consumer.getone(place)
    _note(way, Kept(found.topic, found.partition, found.offset, found.timestamp, found.headers, found.value))


async def _among(
    way: Way, consumer: AIOKafkaConsumer, begin: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> None:
    """Read from `begin` to `ends`, until it is there."""
    if not ends:
        return
    consumer.assign(list(ends))
    for place in ends:
        consumer.seek(place, begin[place])
    stop, newest = monotonic() + SECONDS, None
    encoded = way.id.encode()
    while any([await consumer.position(place) < end for place, end in ends.items()]):
        for records in (await consumer.getmany(timeout_ms=500, max_records=2_000)).values():
            for found in records:
                if way.id == NEWEST:
                    newest = found if newest is None or found.timestamp > newest.timestamp else newest
                elif any(value == encoded for key, value in found.headers if key in ("ce_id", "id")):
                    newest = found
                    break
        if newest is not None and way.id != NEWEST:
            break
        if monotonic() > stop:
            way.said.append("There is too much on Kafka that has not landed: it was not looked through to the end.")
            break
        await asyncio.sleep(0)
    if newest is not None:
        _note(way, Kept(newest.topic, newest.partition, newest.offset, newest.timestamp, newest.headers, newest.value))


def _note(way: Way, record: Kept) -> None:
    quarantined = any(key == "reason" for key, _ in record.headers)
    row: Row = (reject if quarantined else event)(record)
    way.id = str(row.get("event_id") or row.get("id") or way.id) if way.id == NEWEST else way.id
    way.record = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "time": record.timestamp / 1000,
        "bytes": record.size,
        **{
            name: printable(str(row[name]))[:200]
            for name in ("protocol", "stream", "source", "event_time", "reason")
            if row.get(name) is not None
        },
    }
