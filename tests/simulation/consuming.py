"""Consumers of the simulated Kafka, and its admin client: as much of aiokafka as the segment service uses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka import errors
from aiokafka.structs import TopicPartition

from tests.simulation.kafka import Broker, Stored

POLL = 0.1
"""Seconds between two looks of a consumer that waits."""


class SimulatedConsumer:
    """It reads what is stored in one partition, from a place that it is told."""

    def __init__(self, broker: Broker, timeout: float) -> None:
        self._broker = broker
        self._timeout = timeout
        self._place = 0

    async def _broker_answers(self, where: TopicPartition | None = None) -> None:
        """Raises `KafkaTimeoutError` after the time limit of a request."""
        until = self._broker.loop.now + self._timeout
        await self._broker.waits()
        while self._broker.weather.down or (where is not None and not self._broker.has_leader(where.partition)):
            if self._broker.loop.now >= until:
                raise errors.KafkaTimeoutError
            await asyncio.sleep(POLL)

    async def start(self) -> None:
        try:
            await self._broker_answers()
        except errors.KafkaTimeoutError:
            raise errors.KafkaConnectionError("nobody answers") from None

    async def stop(self) -> None: ...

    def assign(self, partitions: Iterable[TopicPartition]) -> None: ...

    def pause(self, *partitions: TopicPartition) -> None: ...

    def seek(self, where: TopicPartition, offset: int) -> None:
        self._place = offset

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        (where,) = partitions
        await self._broker_answers(where)
        return {where: len(self._broker.logs.get(where, []))}

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        (where,) = partitions
        await self._broker_answers(where)
        return {where: self._broker.starts.get(where, 0)}

    async def getmany(
        self, where: TopicPartition, *, timeout_ms: int, max_records: int
    ) -> dict[TopicPartition, list[Stored]]:
        until = self._broker.loop.now + timeout_ms / 1000
        while self._broker.loop.now < until:
            if self._broker.has_leader(where.partition):
                await self._broker.waits()
                if self._place < self._broker.starts.get(where, 0):
                    raise errors.OffsetOutOfRangeError({where: self._place})
                if found := self._broker.logs.get(where, [])[self._place : self._place + max_records]:
                    self._place += len(found)
                    return {where: found}
            await asyncio.sleep(POLL)
        return {}


class SimulatedAdmin:
    """In place of `AIOKafkaAdminClient`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def start(self) -> None:
        await self._broker.waits()
        if self._broker.weather.down:
            raise errors.KafkaConnectionError("nobody answers")

    async def close(self) -> None: ...

    async def delete_records(self, records: Mapping[TopicPartition, Any]) -> None:
        await self.start()
        for where, until in records.items():
            self._broker.starts[where] = max(self._broker.starts.get(where, 0), until.before_offset)
            self._broker.tell(f"the log of {where.topic}/{where.partition} begins at {self._broker.starts[where]}")
