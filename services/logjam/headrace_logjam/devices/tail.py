"""Reads the records that a consumer had stored before it was killed, without writing its positions: the ends of the topics."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Final, NamedTuple

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import ConsumerRecord, TopicPartition
from headrace_common.kafka.client import describe, make_consumer, start
from headrace_common.operations.settings import KafkaSettings
from headrace_common.record.event import source

from headrace_logjam.devices.held import StoredNumbers
from headrace_logjam.devices.positions import Places
from headrace_logjam.events import PROTOCOL

WINDOW_MS: Final = 15_000
"""Records are looked for that were received at most this time before and after the newest position. Positions are written every
second, and a device says something every 5 s."""

TIME: Final = 5.0
"""Seconds that this may take, in which no endpoint is read. Numbers not found by then are called lost, though they are stored."""

RECORDS: Final = 2000
"""Records that are looked at before the event loop turns."""

CREATED: Final = 0
"""The type of a record's time that is ours, not the broker's."""

Found = Mapping[bytes, StoredNumbers]
"""By source."""


class TailNumbers(NamedTuple):
    """The numbers that were found, by endpoint. `whole`: `TIME` was enough for all."""

    held: Mapping[str, StoredNumbers]
    whole: bool


async def read_tail(settings: KafkaSettings, consumer: str, places: Places) -> TailNumbers:
    """Reads the records that `consumer` has stored after `places`, as far as `TIME` allows.

    Raises `KafkaError`, `DeliveryError`, `OSError`.
    """
    held = {name: StoredNumbers(consumer, devices) for name, devices in places.items()}
    times = [at.received for devices in places.values() for at in devices.values()]
    if times:
        first, last = max(min(times), max(times) - WINDOW_MS), max(times) + WINDOW_MS
        by_source = {source(PROTOCOL, name).encode(): found for name, found in held.items()}
        try:
            async with asyncio.timeout(TIME):
                await _read(settings, first, last, by_source)
        except TimeoutError:
            return TailNumbers(held, whole=False)
    return TailNumbers(held, whole=True)


async def _read(settings: KafkaSettings, first: int, last: int, held: Found) -> None:
    topics = await describe(settings)
    places = [TopicPartition(topic.name, each) for topic in topics for each in range(topic.partitions)]
    reader = make_consumer(settings)
    reader.assign(places)
    await start(reader)
    try:
        ends = await reader.end_offsets(places)
        starts = await reader.offsets_for_times(dict.fromkeys(places, first))
        left = {at: ends[at] for at, found in starts.items() if found is not None and found.offset < ends[at]}
        reader.pause(*(at for at in places if at not in left))
        for at in left:
            reader.seek(at, starts[at].offset)
        await _collect(reader, left, last, held)
    finally:
        await reader.stop()


async def _collect(reader: AIOKafkaConsumer, left: dict[TopicPartition, int], last: int, held: Found) -> None:
    """Reads each partition to its end, or until records are newer than `last`."""
    while left:
        found = await reader.getmany(*left, timeout_ms=500, max_records=RECORDS)
        for record in itertools.chain.from_iterable(found.values()):
            add(record, held)
        for at, end in list(left.items()):
            if await reader.position(at) >= end or (found.get(at) and found[at][-1].timestamp > last):
                del left[at]
                reader.pause(at)
        await asyncio.sleep(0)


def add(record: ConsumerRecord, held: Found) -> None:
    """Adds a record of any kind. If an item has several parts, its last one proves that it is stored."""
    headers = dict(record.headers)
    found = held.get(headers.get("ce_source") or b"")
    part, _, parts = (headers.get("part") or b"").partition(b"/")
    if found is not None and record.timestamp_type == CREATED and part == parts:
        about = headers.get("ce_attributes") or headers.get("attributes") or b""
        found.add(headers.get("ce_type") or b"", about, record.value or b"", record.timestamp)
