"""Records that a test puts on topics of its own, and settings that lead a verb there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext

import pytest
from aiokafka import AIOKafkaProducer
from headrace_common.operations.settings import KafkaSettings, environment
from headrace_common.record.contract import HEADERS, QUARANTINE_HEADERS
from headrace_reader.topic_ids import KnownTopic, known_topics

Headers = list[tuple[str, bytes]]
Record = tuple[bytes | None, Headers]


def event_headers(number: int, protocol: str = "forward", stream: str = "shop") -> Headers:
    values = (
        b"1.0", b"d.%032x" % number, f"/{protocol}/h".encode(), f"headrace.{protocol}.event".encode(), stream.encode(),
        b"2026-11-23T08:00:00Z", b"application/json",
    )  # fmt: skip
    return list(zip(HEADERS, values, strict=False))


def reject_headers(reason: str, protocol: str = "forward", part: bytes = b"1/1") -> Headers:
    about = (reason.encode(), b"why", protocol.encode(), f"/{protocol}/h".encode(), b"shop")
    values = (*about, b"u." + b"0" * 32, part, b"ab", b"{}")
    return list(zip(QUARANTINE_HEADERS, values, strict=True))


def put(
    kafka: KafkaSettings,
    topic: str,
    records: Sequence[Record],
    *,
    partition: int = 0,
    timestamp: int | None = None,
    transactions: bool = False,
) -> None:
    """`transactions`: each record in one of its own, whose end takes an offset that holds no record."""

    async def produced() -> None:
        name = f"each.{topic}" if transactions else None
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=name) as producer:
            for number, (value, headers) in enumerate(records):
                at = None if timestamp is None else timestamp + number
                async with producer.transaction() if transactions else nullcontext():
                    await producer.send_and_wait(topic, value, partition=partition, headers=headers, timestamp_ms=at)

    asyncio.run(produced())


def asked(kafka: KafkaSettings, topic: str) -> KnownTopic:
    """What Kafka says of a topic that exists."""
    return asyncio.run(known_topics(kafka, [topic]))[topic]


def lead_to(kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's settings name these topics and this Kafka."""
    for name in ("bootstrap_servers", "events_topic", "quarantine_topic", "segments_topic"):
        for variable, value in environment("kafka", **{name: getattr(kafka, name)}).items():
            monkeypatch.setenv(variable, value)
