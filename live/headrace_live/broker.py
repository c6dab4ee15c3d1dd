"""Ask Kafka each second: where its partitions end, and who leads them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from headrace_common.kafka.client import client_arguments, explain, make_consumer
from headrace_common.operations.errors import HeadraceError
from headrace_common.operations.settings import KafkaSettings

from headrace_live.looks import KafkaLook, PartitionLook

ANSWER: Final = 1.5
"""Time that Kafka has for an answer."""
OPENING: Final = 8.0
"""Time to connect again."""


class KafkaWatch:
    """Asks Kafka as a bystander: without a group, and without writing. `group`: the one of the landing job's positions."""

    def __init__(self, settings: KafkaSettings, *, group: str) -> None:
        self._group = group
        self._settings = settings.model_copy(update={"request_timeout": 2 * ANSWER})
        self._admin: AIOKafkaAdminClient | None = None
        self._consumer: AIOKafkaConsumer | None = None
        self._partitions: Sequence[PartitionLook] = ()

    async def look(self) -> KafkaLook:
        """Ask once. Takes a few seconds at most; the look has any problem."""
        try:
            if self._consumer is None:
                await self._open()
            async with asyncio.timeout(ANSWER):
                return await self._ask()
        except (KafkaError, OSError, TimeoutError, HeadraceError) as error:
            await self.close()
            why = "it does not answer" if isinstance(error, TimeoutError) else explain(error)
            return KafkaLook(why, None, (), self._partitions)

    async def _open(self) -> None:
        async with asyncio.timeout(OPENING if not self._partitions else 2 * ANSWER):
            self._admin = AIOKafkaAdminClient(**client_arguments(self._settings))
            await self._admin.start()
            self._consumer = make_consumer(self._settings)
            await self._consumer.start()

    async def _ask(self) -> KafkaLook:
        assert self._admin is not None
        assert self._consumer is not None
        names = [self._settings.events_topic, self._settings.quarantine_topic]
        topics: dict[str, Any] = {entry["topic"]: entry for entry in await self._admin.describe_topics(names)}
        there = {broker["node_id"] for broker in (await self._admin.describe_cluster())["brokers"]}
        found = {
            TopicPartition(name, int(entry["partition"])): entry
            for name in names
            for entry in topics.get(name, {}).get("partitions") or ()
        }
        ends = {TopicPartition(each.topic, each.number): each.end for each in self._partitions}
        ends |= await self._consumer.end_offsets([place for place, entry in found.items() if entry["leader"] in there])
        landed = await self._landed()
        self._partitions = tuple(
            PartitionLook(
                place.topic,
                place.partition,
                ends.get(place, 0),
                entry["leader"] if entry["leader"] in there else None,
                len(entry["replicas"]),
                len(entry["isr"]),
                landed.get((place.topic, place.partition)),
            )
            for place, entry in sorted(found.items(), key=lambda each: (names.index(each[0].topic), each[0].partition))
        )
        missing = {replica for entry in found.values() for replica in entry["replicas"]} - there
        return KafkaLook("", len(there), tuple(sorted(missing)), self._partitions)

    async def _landed(self) -> dict[tuple[str, int], int]:
        """Return the positions of the landing job's group; empty if we may not read them, or it has none."""
        assert self._admin is not None
        try:
            found = await self._admin.list_consumer_group_offsets(self._group)
        except KafkaError:
            return {}
        return {(place.topic, place.partition): at.offset for place, at in found.items() if at.offset >= 0}

    async def close(self) -> None:
        """Close the connections; the next look opens others."""
        consumer, admin = self._consumer, self._admin
        self._consumer = self._admin = None
        for client in (consumer.stop if consumer else None, admin.close if admin else None):
            if client is not None:
                with suppress(Exception):
                    async with asyncio.timeout(ANSWER):
                        await client()
