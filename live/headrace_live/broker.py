"""Ask Kafka each second: where its partitions end, and who leads them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from headrace_cli.stack.reach import unreachable
from headrace_common.kafka.client import client_arguments, explain, make_consumer
from headrace_common.operations.errors import HeadraceError
from headrace_common.operations.settings import KafkaSettings

from headrace_live.looks import KafkaLook, PartitionLook

ANSWER: Final = 1.5
"""Time that Kafka has for an answer."""
OPENING: Final = 8.0
"""Time to connect again."""
DESCRIBE_EVERY: Final = 5.0


class KafkaWatch:
    """Asks Kafka as a bystander: without a group, and without writing. `group`: the one of the landing job's positions."""

    def __init__(self, settings: KafkaSettings, *, group: str) -> None:
        self._group = group
        self._settings = settings.model_copy(update={"request_timeout": 2 * ANSWER})
        self._admin: AIOKafkaAdminClient | None = None
        self._consumer: AIOKafkaConsumer | None = None
        self._partitions: list[PartitionLook] = []
        self._brokers: int | None = None
        self._missing: Sequence[int] = ()
        self._described = 0.0

    async def look(self) -> KafkaLook:
        """Ask once. Takes a few seconds at most; the look has any problem."""
        try:
            if self._consumer is None:
                await self._open()
            async with asyncio.timeout(ANSWER):
                await self._ask()
            return KafkaLook("", self._brokers, self._missing, tuple(self._partitions))
        except (KafkaError, OSError, TimeoutError, HeadraceError) as error:
            await self.close()
            why = "it does not answer" if isinstance(error, TimeoutError) else explain(error)
            reached = await unreachable(self._settings.bootstrap_servers)
            return KafkaLook(reached or why, None, (), tuple(self._partitions))

    async def _open(self) -> None:
        async with asyncio.timeout(OPENING if not self._partitions else 2 * ANSWER):
            problem = await unreachable(self._settings.bootstrap_servers)
            if problem is not None:
                raise OSError(problem)
            self._admin = AIOKafkaAdminClient(**client_arguments(self._settings))
            await self._admin.start()
            await self._describe()
            self._consumer = make_consumer(self._settings)
            await self._consumer.start()

    async def _ask(self) -> None:
        assert self._consumer is not None
        now = time.monotonic()
        if now - self._described >= DESCRIBE_EVERY:
            await self._describe()
        led = [TopicPartition(each.topic, each.number) for each in self._partitions if each.leader is not None]
        ends = await self._consumer.end_offsets(led)
        landed = await self._landed()
        self._partitions = [
            replace(
                each,
                end=ends.get(TopicPartition(each.topic, each.number), each.end),
                landed=landed.get((each.topic, each.number)),
            )
            for each in self._partitions
        ]

    async def _landed(self) -> dict[tuple[str, int], int]:
        """Return the positions of the landing job's group; empty if we may not read them, or it has none."""
        assert self._admin is not None
        try:
            found = await self._admin.list_consumer_group_offsets(self._group)
        except KafkaError:
            return {}
        return {(place.topic, place.partition): at.offset for place, at in found.items() if at.offset >= 0}

    async def _describe(self) -> None:
        assert self._admin is not None
        names = [self._settings.events_topic, self._settings.quarantine_topic]
        found: dict[str, Any] = {entry["topic"]: entry for entry in await self._admin.describe_topics(names)}
        there = {broker["node_id"] for broker in (await self._admin.describe_cluster())["brokers"]}
        ends = {(each.topic, each.number): each.end for each in self._partitions}
        made, named = [], set()
        for name in names:
            for entry in sorted(found.get(name, {}).get("partitions") or (), key=lambda each: int(each["partition"])):
                leader = entry["leader"] if entry["leader"] in there else None
                number = int(entry["partition"])
                named |= set(entry["replicas"])
                made.append(
                    PartitionLook(
                        name, number, ends.get((name, number), 0), leader, len(entry["replicas"]), len(entry["isr"])
                    )
                )
        self._partitions, self._brokers = made, len(there)
        self._missing = tuple(sorted(named - there))
        self._described = time.monotonic()

    async def close(self) -> None:
        """Close the connections; the next look opens others."""
        consumer, admin = self._consumer, self._admin
        self._consumer = self._admin = None
        for client in (consumer.stop if consumer else None, admin.close if admin else None):
            if client is not None:
                with suppress(Exception):
                    async with asyncio.timeout(ANSWER):
                        await client()
