"""Records as receivers write them, in batches of ours: what the measures of landing send."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiokafka import AIOKafkaProducer
from headrace_common.operations.settings import KafkaSettings
from headrace_common.record.contract import HEADERS
from headrace_common.record.event import rfc3339_ms


class Sent(NamedTuple):
    """One record. `time_ms`: of its receipt."""

    time_ms: int
    value: bytes
    headers: list[tuple[str, bytes]]


def headers(event_id: bytes, frame: int, index: int, time_ms: int) -> list[tuple[str, bytes]]:
    """Returns the eight headers of event `index` of a frame, as long as those of Forward."""
    values = (
        b"1.0", event_id, b"/forward/host-%d.example.org" % (frame % 97), b"headrace.forward.event",
        b"app.web.%d" % (frame % 31), rfc3339_ms(time_ms)[:-1] + b"123456Z", b"application/json",
        b'{"chunk":"%016x","index":%d}' % (frame, index),
    )  # fmt: skip
    return list(zip(HEADERS, values, strict=True))


@asynccontextmanager
async def producing(kafka: KafkaSettings) -> AsyncIterator[AIOKafkaProducer]:
    """Gives a producer as the receivers' is."""
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, enable_idempotence=True, acks="all", compression_type="zstd",
        max_batch_size=1 << 20,
    )  # fmt: skip
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def send(producer: AIOKafkaProducer, topic: str, partition: int, records: Iterable[Sent]) -> int:
    """Sends records as one batch, and waits until it is stored; returns the offset of the first."""
    batch = producer.create_batch()
    for each in records:
        batch.append(key=None, value=each.value, timestamp=each.time_ms, headers=each.headers)
    batch.close()
    return int((await (await producer.send_batch(batch, topic, partition=partition))).offset)
