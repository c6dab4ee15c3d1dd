"""Consumers of the simulated Kafka, and its admin client: as much of aiokafka as the segment service uses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka import errors
from aiokafka.structs import TopicPartition

from tests.simulation.kafka import Broker, Stored

POLL = 0.1
"""Seconds between two looks of a consumer that waits for a broker that is away."""


class SimulatedConsumer:
    """It reads what is stored, from a place that it is told."""

    def __init__(self, broker: Broker, timeout: float) -> None:
        self._broker = broker
        self._timeout = timeout
        self._places: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._news = asyncio.Event()

    async def _broker_answers(self, where: TopicPartition | None = None) -> None:
        """Raises `KafkaTimeoutError` after the time limit of a request."""
        loop, until = self._broker.loop, self._broker.loop.now + self._timeout
        await asyncio.sleep(self._broker.chance.uniform(*self._broker.weather.delay))
        while self._broker.weather.down or (where is not None and not self._broker.has_leader(where.partition)):
            if loop.now >= until:
                raise errors.KafkaTimeoutError
            await asyncio.sleep(POLL)

    async def start(self) -> None:
        try:
            await self._broker_answers()
        except errors.KafkaTimeoutError:
            raise errors.KafkaConnectionError("nobody answers") from None

    async def stop(self) -> None:
        self._places.clear()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._places = dict.fromkeys(partitions, 0)
        self._paused.clear()

    def seek(self, where: TopicPartition, offset: int) -> None:
        self._places[where] = offset
        self._news.set()

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(self._broker.partitions))

    def pause(self, *partitions: TopicPartition) -> None:
        self._paused |= set(partitions)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {where: len(await self._asked(where)) for where in partitions}

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        found = {}
        for where in partitions:
            await self._asked(where)
            found[where] = self._broker.starts.get(where, 0)
        return found

    async def _asked(self, where: TopicPartition) -> list[Stored]:
        await self._broker_answers(where)
        return self._broker.logs.get(where, [])

    async def getmany(
        self, where: TopicPartition, *, timeout_ms: int, max_records: int
    ) -> dict[TopicPartition, list[Stored]]:
        loop, until = self._broker.loop, self._broker.loop.now + timeout_ms / 1000
        while True:
            self._news.clear()
            if where not in self._paused and self._broker.has_leader(where.partition):
                await asyncio.sleep(self._broker.chance.uniform(*self._broker.weather.delay))
                place = self._places.get(where, 0)
                if place < self._broker.starts.get(where, 0):
                    raise errors.OffsetOutOfRangeError({where: place})
                found = self._broker.logs.get(where, [])[place : place + max_records]
                if found and where not in self._paused:
                    self._places[where] = place + len(found)
                    return {where: found}
            left = until - loop.now
            if left <= 0:
                return {}
            self._broker.waiting.setdefault(where, set()).add(self._news)
            try:
                async with asyncio.timeout(left):
                    await self._news.wait()
            except TimeoutError:
                return {}
            finally:
                self._broker.waiting[where].discard(self._news)


class SimulatedAdmin:
    """In place of `AIOKafkaAdminClient`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def start(self) -> None:
        if self._broker.weather.down:
            await asyncio.sleep(1.0)
            raise errors.KafkaConnectionError("nobody answers")

    async def close(self) -> None:
        pass

    async def _answers(self) -> None:
        await asyncio.sleep(self._broker.chance.uniform(*self._broker.weather.delay))
        if self._broker.weather.down:
            raise errors.KafkaConnectionError("nobody answers")

    async def delete_records(self, records: Mapping[TopicPartition, Any]) -> None:
        await self._answers()
        for where, until in records.items():
            self._broker.starts[where] = max(self._broker.starts.get(where, 0), until.before_offset)
            self._broker.tell(f"the log of {where.topic}/{where.partition} begins at {self._broker.starts[where]}")
