"""Publishes events that were read once more, and looks up which of them the lake has already."""

from __future__ import annotations

import asyncio
from binascii import crc32
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError
from headrace_common.kafka.client import CONNECT_TROUBLE, Topic, client_arguments, describe, explain
from headrace_common.operations.settings import KafkaSettings
from headrace_common.record.contract import EventHeader
from headrace_common.session.again import Published

from headrace_cli.errors import CommandError
from headrace_cli.lake.address import LakeAddress
from headrace_cli.lake.tables import connect
from headrace_cli.operating.target import check_reachable

_SOURCE: Final = EventHeader.SOURCE


class Publisher:
    """An idempotent producer to the events topic. A context manager; it blocks while Kafka works."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._runner = asyncio.Runner()
        self._producer: AIOKafkaProducer | None = None
        self._topic: Topic

    def __enter__(self) -> Self:
        try:
            self._runner.run(self._start())
        except BaseException:
            self._runner.close()
            raise
        return self

    async def _start(self) -> None:
        await check_reachable(self._settings)
        self._topic = (await describe(self._settings))[0]
        size = self._topic.max_message_bytes
        producer = AIOKafkaProducer(
            **client_arguments(self._settings),
            enable_idempotence=True,
            acks="all",
            compression_type="zstd",
            max_request_size=size,
            max_batch_size=size,
        )
        try:
            with CONNECT_TROUBLE.told():
                await producer.start()
        except (KafkaError, OSError) as error:
            await producer.stop()
            raise CommandError(f"Kafka at {self._settings.bootstrap_servers}: {explain(error)}") from error
        self._producer = producer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._producer is not None:
                self._runner.run(self._producer.stop())
        finally:
            self._runner.close()

    def publish(self, events: Sequence[Published]) -> Counter[str]:
        """Store events; return why some were refused, with how many. Those of one source keep their order."""
        return self._runner.run(self._publish(events))

    async def _publish(self, events: Sequence[Published]) -> Counter[str]:
        assert self._producer is not None
        refused: Counter[str] = Counter()
        waiting: list[asyncio.Future[Any]] = []
        for event in events:
            partition = crc32(dict(event.headers)[_SOURCE]) % self._topic.partitions
            try:
                waiting.append(
                    await self._producer.send(self._topic.name, event.value, partition=partition, headers=event.headers)
                )
            except MessageSizeTooLargeError:
                refused[f"larger than the topic's max.message.bytes ({self._topic.max_message_bytes})"] += 1
            except KafkaError as error:
                refused[explain(error)] += 1
        for answer in await asyncio.gather(*waiting, return_exceptions=True):
            if isinstance(answer, KafkaError):
                refused[explain(answer)] += 1
            elif isinstance(answer, BaseException):
                raise answer
        return refused


def landed(lake: LakeAddress, ids: Sequence[str]) -> set[str]:
    """Those of `ids` that are in the lake's events. Raises `CommandError` if there is no lake."""
    with connect(lake) as connection:
        if not connection.execute("select 1 from duckdb_views() where view_name = 'events'").fetchall():
            return set()
        found = connection.execute("select event_id from events where list_contains(?, event_id)", [list(ids)])
        return {row[0] for row in found.fetchall()}
