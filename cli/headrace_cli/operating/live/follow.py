"""Follows one event by its id: from its record on Kafka to its row."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from aiokafka.errors import KafkaError
from headrace_common.kafka.client import explain
from headrace_common.operations.errors import HeadraceError
from headrace_common.operations.settings import KafkaSettings

from headrace_cli.ground import CommandError
from headrace_cli.lake.address import LakeAddress
from headrace_cli.lake.text import printable
from headrace_cli.operating.live import tables
from headrace_cli.operating.watch.newest import MESSAGE_BYTES, newest
from headrace_cli.operating.watch.records import Kept, Row, event, reject
from headrace_cli.operating.watch.topic import TopicReader, reading

ID: Final = re.compile(r"[ud]\.[0-9a-f]{32}")
NEWEST: Final = "newest"
"""Asks for the event that was stored last."""
RECORDS: Final = 100_000
"""Most records of each topic that are looked through."""
SECONDS: Final = 10.0
"""Most time for that."""
_ID_HEADERS: Final = ("ce_id", "id")
Place = tuple[str, int]


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
    landed: Mapping[Place, int] | None = None
    if lake is not None and identity != NEWEST:
        landed = await _in_tables(way, lake)
    elif lake is None:
        way.said.append("The tables cannot be read from here.")
    if settings is None:
        way.said.append("Kafka is not known here.")
        return way
    try:
        async with asyncio.timeout(2 * SECONDS + 10):
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


async def _in_tables(way: Way, lake: LakeAddress) -> Mapping[Place, int] | None:
    try:
        way.row = await asyncio.to_thread(tables.find, lake, way.id)
        return await asyncio.to_thread(tables.landed_to, lake) if way.row is None else None
    except CommandError as error:
        way.said.append(str(error))
        return None


async def _on_kafka(way: Way, settings: KafkaSettings, landed: Mapping[Place, int] | None) -> None:
    """Look on the events topic, then among the quarantine."""
    for quarantine in (False, True):
        if way.record is None and not (quarantine and way.id == NEWEST):
            async with reading(settings, quarantine=quarantine) as reader:
                if way.row is None:
                    await _among(way, reader, landed or {})
                elif way.row["topic"] == reader.topic:
                    await _at(way, reader, way.row["partition"], way.row["offset"])


async def _at(way: Way, reader: TopicReader, partition: int, offset: int) -> None:
    await reader.begin_from({partition: offset})
    records: list[Kept] = []
    while not records and not await reader.at_the_end():
        records = await reader.step()
    for record in records:
        if (record.partition, record.offset) == (partition, offset):
            _note(way, record)
            return
    way.said.append("Kafka has deleted its record since it landed, as its retention says.")


async def _among(way: Way, reader: TopicReader, landed: Mapping[Place, int]) -> None:
    """Look among what has not landed, for the id or for the newest."""
    share = 1 if way.id == NEWEST else RECORDS // reader.partitions
    places = {number: max(landed.get((reader.topic, number), 0), end - share) for number, end in reader.ends.items()}
    await reader.begin_from(places)
    found = await newest(reader, 1, partial(_is_it, way.id), MESSAGE_BYTES, SECONDS)
    if found.records:
        _note(way, found.records[0])
    elif found.late:
        way.said.append("There is too much on Kafka that has not landed: it was not looked through to the end.")


def _is_it(identity: str, record: Kept) -> bool:
    return identity == NEWEST or any(key in _ID_HEADERS and value == identity.encode() for key, value in record.headers)


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
