"""The snapshots of one partition's state on their topic: its sets, writing one, and removing old ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition
from headrace_common.kafka.client import make_consumer, start_at
from headrace_common.kafka.producer import Producer
from headrace_common.kafka.record_batch import UNLIMITED, KeyedBatch
from headrace_common.operations.settings import KafkaSettings

from headrace_segment.store.fold import Fold
from headrace_segment.store.snapshots import MANIFEST, Snapshots, parsed

KEPT: Final = 2
"""Complete sets that are kept: the log begins after the older one."""

WAIT_MS: Final = 1000

Parts = Sequence[tuple[bytes, bytes]]


class SnapshotTopic:
    """The sets of one partition, which has the same number on both topics.

    Any replica may write a set. So the sets known here are those up to some offset; `refresh` reads on.
    """

    def __init__(self, settings: KafkaSettings, partition: int) -> None:
        self._settings = settings
        self._where = TopicPartition(settings.snapshots_topic, partition)
        self._keys: dict[int, set[bytes]] = {}
        self._closed: set[int] = set()
        self._position: int | None = None

    async def newest(self, log_start: int) -> Fold | None:
        """Returns the state to start from; None if the log cannot be read on from any set. Raises `KafkaError`."""
        self._position = None
        self._keys.clear()
        self._closed.clear()
        found = Snapshots(self._where.partition)
        await self._read(found.add)
        return found.newest(log_start)

    async def refresh(self) -> None:
        """Reads the records written since the last read. Raises `KafkaError`."""
        await self._read(lambda key, value: None)

    async def _read(self, add: Callable[[bytes | None, bytes | None], None]) -> None:
        consumer: AIOKafkaConsumer = make_consumer(self._settings)
        await start_at(consumer, self._where)
        try:
            end = (await consumer.end_offsets([self._where]))[self._where]
            start = (await consumer.beginning_offsets([self._where]))[self._where]
            position = max(start, self._position or 0)
            consumer.seek(self._where, position)
            consumer.resume(self._where)
            while position < end:
                found = await consumer.getmany(self._where, timeout_ms=WAIT_MS, max_records=20)
                for record in found.get(self._where, ()):
                    self._note(record.key, record.value)
                    add(record.key, record.value)
                position = await consumer.position(self._where)
            self._position = position
        finally:
            await consumer.stop()

    def _note(self, key: bytes | None, value: bytes | None) -> None:
        partition, number, part = parsed(key)
        if not partition or key is None:
            return
        if value is not None:
            self._keys.setdefault(number, set()).add(key)
            if part == MANIFEST:
                self._closed.add(number)
        elif number in self._keys:
            self._keys[number].discard(key)
            self._closed.discard(number)
            if not self._keys[number]:
                del self._keys[number]

    def sets(self) -> list[int]:
        """Returns the offsets of the complete sets, the newest first."""
        return sorted(self._closed, reverse=True)

    async def write(self, parts: Parts) -> None:
        """Stores a set, its manifest last, and deletes all sets but the newest `KEPT`. Raises `DeliveryError`."""
        producer = Producer(self._settings)
        await producer.open((self._where.topic,))
        try:
            for key, value in parts:
                await self._put(producer, key, value)
            for key, value in parts:
                self._note(key, value)
            for key in self._outdated():
                await self._put(producer, key, None)
                self._note(key, None)
        finally:
            await producer.close()

    async def _put(self, producer: Producer, key: bytes, value: bytes | None) -> None:
        batch = KeyedBatch(UNLIMITED)
        batch.add(key, value, time.time_ns() // 1_000_000)
        await producer.store(self._where, batch, asyncio.get_running_loop().time() + self._settings.ack_deadline)

    def _outdated(self) -> list[bytes]:
        """Returns the keys to delete: manifests of old sets first, so that no set that lacks a part looks complete."""
        kept = self.sets()[:KEPT]
        if len(kept) < KEPT:
            return []
        old = [offset for offset in self._keys if offset < kept[-1]]
        keys = [key for offset in sorted(old) for key in self._keys[offset]]
        return sorted(keys, key=lambda key: not key.endswith(MANIFEST.encode()))
