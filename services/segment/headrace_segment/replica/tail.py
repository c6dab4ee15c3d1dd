"""The end of one partition's log, as it is read on.

While only this replica's own records come, and are folded early, it rests: Kafka would only send them back. It
looks again as soon as a batch of ours shows that others' records lie before it, and `REST` after the last batch that has
shown none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.structs import TopicPartition
from headrace_common.kafka.client import make_consumer, start_at
from headrace_common.operations.settings import KafkaSettings

REST: Final = 0.1
"""Seconds by which others' records that follow ours are read later at most. Above the pause between two batches of a partition
while 64 writers share a dozen (20 to 30 ms): with a shorter rest Kafka sends all of theirs back.
"""

SLICE: Final = 300
"""Records that are handed to the fold before the event loop turns."""

FETCH_BYTES: Final = 4 << 20
FETCH_WAIT: Final = 5.0
"""Seconds that Kafka holds a fetch at the log's end, unless a record comes: each partition asks as often in a quiet log."""


class Tail:
    """Reads on from `position`, which tells the next offset that is needed. `start` it first.

    Each partition has a consumer of its own. With one for all, a partition that has rested would wait until Kafka has answered
    the fetch for the others, which takes up to `FETCH_WAIT`.
    """

    def __init__(self, settings: KafkaSettings, where: TopicPartition, position: Callable[[], int]) -> None:
        self._where = where
        self._position = position
        self._consumer: AIOKafkaConsumer = make_consumer(
            settings,
            max_partition_fetch_bytes=FETCH_BYTES,
            fetch_max_wait_ms=int(min(FETCH_WAIT, settings.request_timeout / 2) * 1000),
        )
        self._loop = asyncio.get_running_loop()
        self._rested = 0.0
        self._resting: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Raises `KafkaError`; the consumer is closed then."""
        await start_at(self._consumer, self._where)
        self._go()

    async def records(self, wait_ms: int) -> list[ConsumerRecord[bytes, bytes]]:
        """Returns the next records; none if none come for `wait_ms`. Some may lie below `position`. Raises `KafkaError`."""
        found = await self._consumer.getmany(self._where, timeout_ms=wait_ms, max_records=SLICE)
        records: list[ConsumerRecord[bytes, bytes]] = found.get(self._where, [])
        return records

    def rest(self) -> None:
        """Rests: all up to `position` is known, and the newest is our own."""
        self._rested = self._loop.time()
        if self._resting is None:
            # a fetch under way is dropped undecoded, since it does not begin at the new place
            self._consumer.seek(self._where, self._position())
            self._consumer.pause(self._where)
            self._resting = self._loop.call_later(REST, self._due)

    def look(self) -> None:
        """Reads at once: others' records have come, or may have."""
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
            self._go()

    def _due(self) -> None:
        left = self._rested + REST - self._loop.time()
        if left > 0:
            self._resting = self._loop.call_later(left, self._due)
        else:
            self.look()

    def _go(self) -> None:
        self._consumer.seek(self._where, self._position())
        self._consumer.resume(self._where)

    async def close(self) -> None:
        """Ends the consumer."""
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        await self._consumer.stop()
