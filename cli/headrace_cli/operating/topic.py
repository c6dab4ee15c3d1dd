"""Reads a topic as a bystander: without a group, so that no group's offsets move, and a bounded number of records at a time."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from headrace_common.kafka.client import consuming, describe, explain
from headrace_common.operations.settings import KafkaSettings

from headrace_cli.ground import CommandError
from headrace_cli.options import NOW
from headrace_cli.stack.reach import check_reachable

RECORDS: Final = 500
"""Most records of one step."""
FETCH_BYTES: Final = 8 * 1024 * 1024
"""Most bytes that a fetch brings, if no record is larger."""
STEP_MS: Final = 500


class TopicReader:
    """Reads `topic` from where it was told to begin. It goes on when a Kafka that was away is back."""

    def __init__(self, consumer: AIOKafkaConsumer, topic: str, ends: Mapping[TopicPartition, int]) -> None:
        self.topic = topic
        self._consumer = consumer
        self._ends = ends

    async def step(self) -> list[Any]:
        """Return the next records, in order of their time; none if none has come for half a second."""
        found = await self._consumer.getmany(timeout_ms=STEP_MS, max_records=RECORDS)
        each = [record for records in found.values() for record in records]
        return sorted(each, key=lambda record: (record.timestamp, record.partition, record.offset))

    async def at_the_end(self) -> bool:
        """Return whether all that was there at the beginning has been read."""
        return not [place for place, end in self._ends.items() if await self._consumer.position(place) < end]


@asynccontextmanager
async def reading(
    settings: KafkaSettings, begin: datetime | str, *, quarantine: bool = False
) -> AsyncIterator[TopicReader]:
    """Open the events or the quarantine topic, to read the records stored from `begin` on: a time, `options.BEGINNING`, or `NOW`
    for those to come. Raises `CommandError`, `DeliveryError` (Kafka does not answer, no topic).
    """
    await check_reachable(settings)
    topic = (await describe(settings))[1 if quarantine else 0]
    partitions = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
    # where retention has overtaken it, it goes on with the oldest record left
    options = {"auto_offset_reset": "earliest", "fetch_max_bytes": FETCH_BYTES}
    log = logging.getLogger("aiokafka")
    level = log.level
    log.setLevel(logging.CRITICAL)  # it warns several times a second while a broker is away
    try:
        async with consuming(settings, partitions, **options) as consumer:
            ends = await consumer.end_offsets(partitions)
            for place, offset in (await _places(consumer, ends, begin)).items():
                consumer.seek(place, offset)
            yield TopicReader(consumer, topic.name, ends)
    except KafkaError as error:
        raise CommandError(f"Kafka at {settings.bootstrap_servers}: {explain(error)}") from error
    finally:
        log.setLevel(level)


async def _places(
    consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int], begin: datetime | str
) -> Mapping[TopicPartition, int]:
    if begin == NOW:
        return ends
    wanted = max(0, int(begin.timestamp() * 1000)) if isinstance(begin, datetime) else 0
    by_time = await consumer.offsets_for_times(dict.fromkeys(ends, wanted))
    return {place: ends[place] if at is None else at.offset for place, at in by_time.items()}
