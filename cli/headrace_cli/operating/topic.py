"""Reads a topic as a bystander: without a group, so that no group's offsets move, and a bounded number of records at a time."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from headrace_common.kafka.client import describe, explain, make_consumer
from headrace_common.operations.settings import KafkaSettings
from typing_extensions import override

from headrace_cli.ground import CommandError
from headrace_cli.operating.records import BEGINNING, NOW, StoredRecord
from headrace_cli.stack.reach import check_reachable

RECORDS: Final = 500
"""Most records of one step."""
FETCH_BYTES: Final = 8 * 1024 * 1024
"""Most bytes that a fetch brings, if no record is larger."""
STEP_MS: Final = 500


class _Trouble(logging.Handler):
    """Takes aiokafka's warnings, a few every second while a broker is away: without a handler Python prints each of them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.seen = False

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.seen = True


class TopicReader:
    """Reads `topic` from where it was told (`begin_at`)."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        topic: str,
        partitions: int,
        trouble: _Trouble,
        on_away: Callable[[bool], None],
    ) -> None:
        self.topic = topic
        self._trouble = trouble
        self._on_away = on_away
        self._away = False
        self._consumer = consumer
        self._partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self._ends: Mapping[TopicPartition, int] = {}

    async def open(self) -> None:
        """Connect, and note where the topic ends now."""
        await self._consumer.start()
        self._consumer.assign(self._partitions)
        self._ends = await self._consumer.end_offsets(self._partitions)

    async def begin_at(self, moment: datetime | str) -> None:
        """Begin with the records stored from `moment` on, with the first one, or with the next one to come."""
        places: Mapping[TopicPartition, int] = self._ends
        if moment == BEGINNING:
            places = await self._consumer.beginning_offsets(self._partitions)
        elif moment != NOW:
            assert isinstance(moment, datetime)
            wanted = max(0, int(moment.timestamp() * 1000))
            found = await self._consumer.offsets_for_times(dict.fromkeys(self._partitions, wanted))
            places = {place: self._ends[place] if at is None else at.offset for place, at in found.items()}
        for place in self._partitions:
            self._consumer.seek(place, places[place])

    async def step(self) -> list[StoredRecord]:
        """Return the next records, in order of their time; none if none has come for half a second."""
        found = await self._consumer.getmany(timeout_ms=STEP_MS, max_records=RECORDS)
        troubled, self._trouble.seen = self._trouble.seen, False
        if (found and self._away) or (troubled and not found and not self._away):
            self._away = not self._away
            self._on_away(self._away)
        kept = [
            StoredRecord(record.topic, record.partition, record.offset, record.timestamp, record.headers, record.value)
            for records in found.values()
            for record in records
        ]
        return sorted(kept, key=lambda record: record.order)

    def before_the_end(self, record: StoredRecord) -> bool:
        """Return whether it was there when the reader opened."""
        return record.offset < self._ends[TopicPartition(record.topic, record.partition)]

    async def at_the_end(self) -> bool:
        """Return whether all of this has been read."""
        for place in self._partitions:
            if await self._consumer.position(place) < self._ends[place]:
                return False
        return True


@asynccontextmanager
async def reading(
    settings: KafkaSettings, *, quarantine: bool = False, on_away: Callable[[bool], None] = lambda _: None
) -> AsyncIterator[TopicReader]:
    """Open the events or the quarantine topic. Raises `CommandError`, `DeliveryError` (Kafka does not answer, no topic).

    `on_away`: told True when a broker goes away while records are missing (it goes on trying), False when some come again.
    """
    await check_reachable(settings)
    topic = (await describe(settings))[1 if quarantine else 0]
    # where retention has overtaken it, it goes on with the oldest record left
    consumer = make_consumer(settings, auto_offset_reset="earliest", fetch_max_bytes=FETCH_BYTES)
    trouble, logger = _Trouble(), logging.getLogger("aiokafka")
    logger.addHandler(trouble)
    try:
        reader = TopicReader(consumer, topic.name, topic.partitions, trouble, on_away)
        await reader.open()
        yield reader
    except KafkaError as error:
        raise CommandError(f"Kafka at {settings.bootstrap_servers}: {explain(error)}") from error
    finally:
        await consumer.stop()
        logger.removeHandler(trouble)
