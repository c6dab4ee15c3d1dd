"""The position of this consumer in each device's numbers, kept in Kafka: the numbers it misses while it is away become a gap.

Kept as the metadata of a consumer group's commits on the events topic, an endpoint always in the same partition. The offset is
`EXACT` if nothing was stored after these positions: the consumer ended in order. Else it is 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupCoordinatorNotAvailableError, KafkaError
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from headrace_common.kafka.client import client_arguments, explain, make_consumer, start
from headrace_common.operations.log import RateLimited
from headrace_common.operations.settings import KafkaSettings
from headrace_common.publishing.partitions import partition_of

GROUP: Final = "headrace.logjam."
PAUSE: Final = 1.0
"""Seconds between two attempts to read them, while Kafka does not answer."""

SAVE_TIME: Final = 10.0
METADATA: Final = 4000
"""Bytes of metadata that a broker takes with a commit, by default 4096."""

EXACT: Final = 1

AGAIN: Final = 3600.0
"""Seconds after which unchanged positions are written again. A broker forgets a commit after `offsets.retention.minutes` (a week
by default), and with a deleted topic; one that is restored from a copy has an older one.
"""


class DevicePosition(NamedTuple):
    """The last number that is stored with all before it, and when it was received (Unix time, ms)."""

    sequence: int
    received: int


Places = Mapping[str, Mapping[int, DevicePosition]]
"""By endpoint and device."""


def encode(places: Places) -> str:
    """Returns the positions as a commit keeps them."""
    return json.dumps({name: {str(d): list(p) for d, p in devices.items()} for name, devices in places.items()})


def decode(text: str) -> dict[str, dict[int, DevicePosition]]:
    """Returns the positions that `encode` has written; none if the text is anything else."""
    try:
        return {
            str(name): {int(device): DevicePosition(int(at[0]), int(at[1])) for device, at in devices.items()}
            for name, devices in json.loads(text or "{}").items()
        }
    except (ValueError, TypeError, AttributeError, IndexError):
        return {}


class Positions:
    """Reads them once and writes them when they have changed."""

    def __init__(self, settings: KafkaSettings, consumer: str, limited: RateLimited) -> None:
        self._settings = settings
        self._group = GROUP + consumer
        self._limited = limited
        self._consumer: AIOKafkaConsumer | None = None
        self._partitions: list[TopicPartition] = []
        self._written: dict[TopicPartition, tuple[int, str]] = {}
        self._due = 0.0  # when all is written again (event loop time)
        self._saving = asyncio.Lock()  # aiokafka retries a commit, also after a later one

    @property
    def exact(self) -> bool:
        """Whether nothing was stored after the positions that were written last."""
        return all(offset == EXACT for offset, _ in self._written.values())

    async def load(self) -> dict[str, dict[int, DevicePosition]]:
        """Returns the positions that were written last. Waits until Kafka answers."""
        while True:
            try:
                return await self._load()
            except (KafkaError, OSError) as error:
                self._limited.warning("positions cannot be read", group=self._group, problem=explain(error))
                await asyncio.sleep(PAUSE)

    async def _load(self) -> dict[str, dict[int, DevicePosition]]:
        topic = self._settings.events_topic
        admin = AIOKafkaAdminClient(**client_arguments(self._settings))
        try:
            await admin.start()
            (described,) = await admin.describe_topics([topic])
            self._partitions = [TopicPartition(topic, each) for each in range(len(described["partitions"]))]
            found = await admin.list_consumer_group_offsets(self._group, partitions=self._partitions)
        finally:
            await admin.close()
        if found.keys() != set(self._partitions):  # aiokafka passes over the error of an answer without partitions
            raise GroupCoordinatorNotAvailableError(f"the offsets of {self._group} are not loaded yet")
        consumer = make_consumer(self._settings, self._group, auto_offset_reset="latest")
        await start(consumer)
        consumer.assign(self._partitions)
        consumer.pause(*self._partitions)  # it only commits
        self._consumer = consumer
        places: dict[str, dict[int, DevicePosition]] = {}
        for partition, kept in found.items():
            if kept.metadata:
                self._written[partition] = kept.offset, kept.metadata
                places |= decode(kept.metadata)
        return places

    async def save(self, places: Places, *, exact: bool = False) -> None:
        """Writes changed positions, after those that are being written. Those that Kafka does not take are written with the next
        change. `exact`: nothing is stored after them.
        """
        async with self._saving:
            if self._consumer is not None:
                await self._save(self._consumer, places, EXACT if exact else 0)

    async def _save(self, consumer: AIOKafkaConsumer, places: Places, offset: int) -> None:
        there = consumer.partitions_for_topic(self._settings.events_topic)
        # Kafka takes nothing of a commit that names a partition that a recreated topic has no more.
        if there and len(there) < len(self._partitions):
            del self._partitions[len(there) :]
            self._written = {at: kept for at, kept in self._written.items() if at in self._partitions}
        shares: list[dict[str, Mapping[int, DevicePosition]]] = [{} for _ in self._partitions]
        for name, devices in places.items():
            shares[partition_of(name.encode(), len(shares))][name] = devices
        texts = dict(zip(self._partitions, map(encode, shares), strict=True))
        now = asyncio.get_running_loop().time()
        again = self._written.keys() if now >= self._due else ()
        changed = {
            at: (offset, text)
            for at, text in texts.items()
            if at in again or self._written.get(at, (offset, "{}")) != (offset, text)
        }
        for at in [at for at, (_, text) in changed.items() if len(text) > METADATA]:
            self._limited.warning("positions not kept", why="too many devices", partition=at.partition)
            del changed[at]
        if not changed:
            return
        try:
            commits = {at: OffsetAndMetadata(*each) for at, each in changed.items()}
            await asyncio.wait_for(consumer.commit(commits), SAVE_TIME)
        except (KafkaError, OSError, TimeoutError) as error:
            self._limited.warning("positions not written", group=self._group, problem=explain(error))
        else:
            self._written |= changed
            if again:
                self._due = now + AGAIN

    async def close(self) -> None:
        """Closes its client, in bounded time."""
        if self._consumer is not None:
            with contextlib.suppress(KafkaError, OSError, TimeoutError):
                await asyncio.wait_for(self._consumer.stop(), SAVE_TIME)
