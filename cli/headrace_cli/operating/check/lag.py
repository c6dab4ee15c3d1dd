"""How long Kafka will keep the oldest record of each partition that has not landed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from headrace_common.kafka.client import Topic, describe, explain, make_consumer
from headrace_common.operations.settings import KafkaSettings

from headrace_cli.errors import CommandError
from headrace_cli.lake.against_kafka import Place

LOW: Final = 0.1
"""Share of the retention below which a margin is a doubt, as the landing job warns."""
_READ_MS: Final = 5_000


@dataclass(frozen=True)
class Waiting:
    """Records of a partition that have not landed. `margin`: seconds until the topic's retention may delete the oldest.

    `retention`: seconds; None if it has no limit, or we may not read it. `ahead`: offsets that Kafka still holds in front of
    the oldest. `full`: the topic has a limit in bytes, too, and Kafka has begun to delete.
    """

    place: Place
    count: int
    retention: float | None
    margin: float | None
    ahead: int
    full: bool

    @property
    def doubtful(self) -> bool:
        """Whether Kafka may delete the oldest before it lands."""
        if self.margin is not None and self.retention is not None and self.margin < LOW * self.retention:
            return True
        return self.full and self.ahead < LOW * (self.ahead + self.count)


async def waiting(
    settings: KafkaSettings, landed: Mapping[Place, int], offsets: Mapping[Place, tuple[int, int]]
) -> list[Waiting]:
    """Return the partitions with records that have not landed. `offsets`: first and end of each partition in Kafka.

    Raises `CommandError`, `DeliveryError`.
    """
    topics = {topic.name: topic for topic in await describe(settings)}
    behind = {
        place: max(first, landed.get(place, first))
        for place, (first, end) in offsets.items()
        if end > max(first, landed.get(place, first))
    }
    if not behind:
        return []
    consumer = make_consumer(settings, auto_offset_reset="earliest")
    try:
        await consumer.start()
        return [
            await _waiting(consumer, topics.get(place[0]), place, at, offsets[place]) for place, at in behind.items()
        ]
    except KafkaError as error:
        raise CommandError(f"Kafka at {settings.bootstrap_servers}: {explain(error)}") from error
    finally:
        await consumer.stop()


async def _waiting(
    consumer: AIOKafkaConsumer, topic: Topic | None, place: Place, oldest: int, held: tuple[int, int]
) -> Waiting:
    configuration = topic.configuration if topic is not None else {}
    limit = int(configuration.get("retention.ms", "-1"))
    retention = limit / 1000 if limit >= 0 else None
    margin = None
    if retention is not None:
        stored = await _timestamp(consumer, TopicPartition(*place), oldest)
        margin = None if stored is None else stored + retention - time.time()
    full = held[0] > 0 and int(configuration.get("retention.bytes", "-1")) >= 0
    return Waiting(place, held[1] - oldest, retention, margin, oldest - held[0], full)


async def _timestamp(consumer: AIOKafkaConsumer, place: TopicPartition, offset: int) -> float | None:
    """Unix time when the first record from `offset` on was stored; None if none comes in time."""
    consumer.assign([place])
    consumer.seek(place, offset)
    try:
        async with asyncio.timeout(_READ_MS / 1000):
            record = await consumer.getone(place)
    except TimeoutError:
        return None
    return float(record.timestamp) / 1000
