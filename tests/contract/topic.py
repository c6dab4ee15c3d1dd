"""What Kafka has stored, read as any consumer would."""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import json
import uuid
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition
from headrace_common.kafka.producer import Producer
from headrace_common.kafka.record_batch import BatchBuilder
from headrace_common.operations.settings import KafkaSettings, TopicSettings
from headrace_common.record.contract import HEADERS, QUARANTINE_HEADERS, REQUIRED_HEADERS
from headrace_common.topics import ensure

from tests.contract.waiting import PATIENCE

T = TypeVar("T")
_ASIDE = concurrent.futures.ThreadPoolExecutor(1)


@dataclass(frozen=True)
class Stored:
    """One record of either topic."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    headers: list[tuple[str, bytes]]
    value: bytes

    def __getitem__(self, header: str) -> str:
        return dict(self.headers)[header].decode()

    @property
    def id(self) -> str:
        return self["ce_id"]

    @property
    def attributes(self) -> dict[str, Any]:
        return json.loads(dict(self.headers).get("ce_attributes", b"{}"))

    @property
    def json(self) -> Any:
        return json.loads(self.value)


async def produce(kafka: KafkaSettings, where: TopicPartition, batch: BatchBuilder) -> None:
    """Stores a batch."""
    producer = Producer(kafka)
    await producer.open((where.topic,))
    try:
        await producer.store(where, batch, asyncio.get_running_loop().time() + PATIENCE)
    finally:
        await producer.close()


async def since(kafka: KafkaSettings, topic: str, positions: Mapping[int, int]) -> tuple[list[Stored], dict[int, int]]:
    """What a topic holds behind these positions of its partitions, and the positions behind that."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=kafka.bootstrap_servers,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=20,
    )
    await consumer.start()
    try:
        partitions = sorted(consumer.assignment())
        assert partitions, f"{topic} has no partitions"
        ends = await consumer.end_offsets(partitions)
        found = []
        for partition in partitions:
            if partition.partition in positions:
                consumer.seek(partition, positions[partition.partition])
        waiting = {p for p in partitions if ends[p] > positions.get(p.partition, 0)}
        while waiting:
            batches = await consumer.getmany(*waiting, timeout_ms=1000)
            for partition, records in batches.items():
                found += [
                    Stored(partition.partition, r.offset, r.timestamp, r.key, list(r.headers), r.value) for r in records
                ]
            waiting = {p for p in waiting if await consumer.position(p) < ends[p]}
        found.sort(key=lambda record: (record.partition, record.offset))
        return found, {**positions, **{record.partition: record.offset + 1 for record in found}}
    finally:
        await consumer.stop()


async def events(kafka: KafkaSettings, mark: str | None = None) -> list[Stored]:
    """All that is on the events topic now, by partition and offset; with `mark` only events that carry it."""
    records, _ = await since(kafka, kafka.events_topic, {})
    return records if mark is None else [r for r in records if mark.encode() in r.value]


async def quarantined(kafka: KafkaSettings, mark: str | None = None) -> list[Stored]:
    """All that is on the quarantine topic now; with `mark` only what holds it somewhere in its bytes."""
    records, _ = await since(kafka, kafka.quarantine_topic, {})
    return records if mark is None else [r for r in records if mark.encode() in r.value]


def in_order(records: Iterable[Stored]) -> None:
    """Every record has the headers of an event, in their order, and no key."""
    for record in records:
        names = tuple(name for name, _ in record.headers)
        assert names in (HEADERS, REQUIRED_HEADERS)
        assert record.key is None


def reassembled(records: Iterable[Stored]) -> dict[str, bytes]:
    """The raw bytes of each reject, by its id, put together from its parts and checked against their hash."""
    pieces: dict[str, dict[int, Stored]] = defaultdict(dict)
    for record in records:
        assert tuple(name for name, _ in record.headers) == QUARANTINE_HEADERS
        number, _ = record["part"].split("/")
        assert int(number) not in pieces[record["id"]], "a part is there twice"
        pieces[record["id"]][int(number)] = record
    whole = {}
    for name, parts in pieces.items():
        count = int(parts[min(parts)]["part"].split("/")[1])
        assert sorted(parts) == list(range(1, count + 1)), f"parts {sorted(parts)} of {count}"
        whole[name] = b"".join(parts[number].value for number in sorted(parts))
        assert hashlib.sha256(whole[name]).hexdigest() == parts[1]["sha256"]
    return whole


def now(work: Coroutine[Any, Any, T]) -> T:
    """Does `work` outside of any event loop that runs here: for fixtures that outlive a test's loop.

    Always in the same thread: what a thread has started tethered ends with the thread.
    """
    return _ASIDE.submit(asyncio.run, work).result()


def unmade(bootstrap: str) -> KafkaSettings:
    """Names of topics that nobody else uses."""
    mark = uuid.uuid4().hex[:8]
    names = {f"{kind}_topic": f"{kind}.{mark}" for kind in ("events", "quarantine", "segments")}
    return KafkaSettings(bootstrap_servers=bootstrap, **names)


def own_topics(bootstrap: str, topics: TopicSettings | None = None) -> KafkaSettings:
    """Topics that nobody else uses."""
    kafka = unmade(bootstrap)
    now(ensure(kafka, topics or TopicSettings(events_partitions=4, segments_partitions=0)))
    return kafka


def apart(kafka: KafkaSettings, segments: int) -> KafkaSettings:
    """The same topics for another receiver at the same time, with a log of segments of its own: one process owns that."""
    if not segments:
        return kafka
    own = own_topics(kafka.bootstrap_servers, TopicSettings(segments_partitions=segments))
    return kafka.model_copy(update={"segments_topic": own.segments_topic})
