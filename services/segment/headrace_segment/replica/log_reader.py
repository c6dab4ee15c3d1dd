"""Reads of the segments topic: a partition's records from an offset on, and where its log begins and ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition
from headrace_common.kafka.client import make_consumer, start, start_at
from headrace_common.operations.settings import KafkaSettings

from headrace_segment.store.reading import Gathering

READERS: Final = 4
"""Reads that run at once; others wait for their turn."""

SLICE: Final = 200
"""Records that are read before the event loop turns."""

ENOUGH_RECORDS: Final = 20_000
"""Records after which a read that has found something is answered with that."""

WAIT_MS: Final = 1000


class LogReader:
    """Consumers of the segments topic that go where they are needed. `start` it first."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._topic = settings.segments_topic
        self._asking: AIOKafkaConsumer | None = None  # never fetches: a fetch that waits would hold its question up
        self._free: asyncio.LifoQueue[AIOKafkaConsumer | None] = asyncio.LifoQueue()
        self._made: list[AIOKafkaConsumer] = []
        for _ in range(READERS):
            self._free.put_nowait(None)

    async def start(self) -> None:
        """Connects. Raises `KafkaError`."""
        consumer = make_consumer(self._settings)
        await start_at(consumer, TopicPartition(self._topic, 0))
        self._made.append(consumer)
        self._asking = consumer

    async def _make(self) -> AIOKafkaConsumer:
        consumer = make_consumer(self._settings)
        await start(consumer)
        self._made.append(consumer)
        return consumer

    async def bounds(self, partition: int) -> tuple[int, int]:
        """Returns the offsets of the partition's first record, and after its last one. Raises `KafkaError`."""
        assert self._asking is not None
        where = TopicPartition(self._topic, partition)
        first = await self._asking.beginning_offsets([where])
        end = await self._asking.end_offsets([where])
        return int(first[where]), int(end[where])

    async def gather(self, partition: int, gathering: Gathering) -> bytes:
        """Returns the bytes that `gathering` looks for, or their first part. Waits for its turn, and for Kafka without limit.

        Raises `KafkaError` (`OffsetOutOfRangeError`: they are gone from the log) and `LogError`.
        """
        first = gathering.next_log_offset

        def take(record: Any) -> bool:
            done = gathering.take(record.offset, record.key, record.value)
            return done or (record.offset >= first + ENOUGH_RECORDS and bool(gathering.data))

        if not gathering.done:
            await self.read(partition, first, take)
        return gathering.data

    async def read(self, partition: int, offset: int, take: Callable[[Any], bool]) -> None:
        """Hands the records from `offset` on to `take`, until that returns True. Waits for its turn, and for Kafka without limit.

        Raises `KafkaError`, and what `take` raises.
        """
        where = TopicPartition(self._topic, partition)
        async with self._reader() as reader:
            reader.assign([where])
            reader.seek(where, offset)
            try:
                while True:
                    found = await reader.getmany(where, timeout_ms=WAIT_MS, max_records=SLICE)
                    for record in found.get(where, ()):
                        if take(record):
                            return
                    await asyncio.sleep(0)
            finally:
                reader.pause(where)

    @asynccontextmanager
    async def _reader(self) -> AsyncIterator[AIOKafkaConsumer]:
        reader = await self._free.get()
        try:
            if reader is None:
                reader = await self._make()
            yield reader
        finally:
            self._free.put_nowait(reader)

    async def close(self) -> None:
        """Ends the consumers."""
        for consumer in self._made:
            await consumer.stop()
