"""Reads of the segments topic: its records from an offset on, and where it begins and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition
from headrace_common.kafka.client import make_consumer, start_at
from headrace_common.operations.settings import KafkaSettings

from headrace_segment.store.reading import Gathering

SLICE: Final = 200
"""Records that are read before the event loop turns."""

ENOUGH_RECORDS: Final = 20_000
"""Records after which a read that has found something is answered with that."""

WAIT_MS: Final = 1000


class LogReader:
    """Reads one after the other, once `bounds` has connected."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._where = TopicPartition(settings.segments_topic, 0)
        self._consumers: list[AIOKafkaConsumer] = []  # the first never fetches: a fetch would hold its questions up
        self._turn = asyncio.Lock()

    async def bounds(self) -> tuple[int, int]:
        """Returns the offsets of the first record, and after the last one. Raises `KafkaError`."""
        while len(self._consumers) < 2:
            consumer = make_consumer(self._settings)
            await start_at(consumer, self._where)
            self._consumers.append(consumer)
        asking = self._consumers[0]
        first = await asking.beginning_offsets([self._where])
        end = await asking.end_offsets([self._where])
        return int(first[self._where]), int(end[self._where])

    async def gather(self, gathering: Gathering) -> bytes:
        """Returns the bytes that `gathering` looks for, or their first part. Waits for its turn, and for Kafka without limit.

        Raises `KafkaError` (`OffsetOutOfRangeError`: they are gone from the log) and `LogError`.
        """
        first = gathering.next_log_offset

        def take(record: Any) -> bool:
            done = gathering.take(record.offset, record.key, record.value)
            return done or (record.offset >= first + ENOUGH_RECORDS and bool(gathering.data))

        if not gathering.done:
            await self.read(first, take)
        return gathering.data

    async def read(self, offset: int, take: Callable[[Any], bool]) -> None:
        """Hands the records from `offset` on to `take`, until that returns True. Waits for its turn, and for Kafka without limit.

        Raises `KafkaError`, and what `take` raises.
        """
        async with self._turn:
            reader = self._consumers[1]
            reader.assign([self._where])
            reader.seek(self._where, offset)
            try:
                while True:
                    found = await reader.getmany(self._where, timeout_ms=WAIT_MS, max_records=SLICE)
                    for record in found.get(self._where, ()):
                        if take(record):
                            return
                    await asyncio.sleep(0)
            finally:
                reader.pause(self._where)

    async def close(self) -> None:
        """Ends the consumers."""
        for consumer in self._consumers:
            await consumer.stop()
