"""Fills topics, and checks that the tables hold what they must."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from headrace_cli.verbs import query
from headrace_common.operations.settings import KafkaSettings
from headrace_common.record.contract import HEADERS, QUARANTINE_HEADERS
from headrace_common.record.event import rfc3339_ms
from headrace_reader.proof import exactly_once

Place = tuple[str, int, int]
PARTITIONS = 4
NOW = 1_770_000_000_000


@dataclass
class Sent:
    """What was sent, by its place in Kafka."""

    events: dict[Place, tuple[str, str]] = field(default_factory=dict)  # -> event id, body
    quarantined: dict[Place, tuple[bytes | None, str]] = field(default_factory=dict)  # -> raw, reason
    resent: int = 0  # events that were sent again, and must not land again


async def send(
    kafka: KafkaSettings, sent: Sent, records: int, *, bad_every: int = 50, mark: str = "a", resend_every: int = 0
) -> None:
    """Sends `records` records to the events topic's partitions, every `bad_every`th one bad, and some to quarantine.

    With `resend_every`, every such record repeats the event before it.
    """
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, enable_idempotence=True, acks="all", compression_type="zstd",
        max_batch_size=1 << 20,
    )  # fmt: skip
    await producer.start()
    try:
        for partition in range(PARTITIONS):
            for start in range(0, records // PARTITIONS, 500):
                indexes = range(start, min(start + 500, records // PARTITIONS))
                await _send_events(producer, kafka, sent, indexes, partition, bad_every, mark, resend_every)
        for partition in range(3):
            await _send_rejects(producer, kafka, sent, records // 100, partition, mark)
    finally:
        await producer.stop()


async def _send_events(
    producer: AIOKafkaProducer,
    kafka: KafkaSettings,
    sent: Sent,
    indexes: range,
    partition: int,
    bad_every: int,
    mark: str,
    resend_every: int,
) -> None:
    batch = producer.create_batch()
    expected: list[tuple[bool, object] | None] = []
    for position in indexes:
        again = bool(resend_every) and position % resend_every == resend_every - 1
        index = position - again
        body = json.dumps({"mark": mark, "partition": partition, "index": index, "text": "x" * 100}).encode()
        event_id = f"d.{mark.encode().hex():0>16}{partition:08x}{index:08x}"
        values = (
            b"1.0", event_id.encode(), b"/forward/host-%d" % partition, b"headrace.forward.event", b"app.web",
            rfc3339_ms(NOW + index), b"application/json", b'{"index":%d}' % index,
        )  # fmt: skip
        headers = list(zip(HEADERS, values, strict=True))
        if index % bad_every == 7:
            odd = index // bad_every % 2
            headers = headers[1:] if odd else [*headers, headers[1]]
            expected.append((False, (body, "missing_header" if odd else "repeated_header")))
        else:
            expected.append(None if again else (True, (event_id, body.decode())))
        assert batch.append(key=None, value=body, timestamp=None, headers=headers) is not None
    batch.close()
    start = (await (await producer.send_batch(batch, kafka.events_topic, partition=partition))).offset
    for offset, record in enumerate(expected, start):
        if record is None:
            sent.resent += 1
            continue
        good, what = record
        place = (kafka.events_topic, partition, offset)
        (sent.events if good else sent.quarantined)[place] = what  # type: ignore[assignment]


async def _send_rejects(
    producer: AIOKafkaProducer, kafka: KafkaSettings, sent: Sent, count: int, partition: int, mark: str
) -> None:
    for index in range(count):
        raw = f"{mark} {partition} {index} ".encode() + b"\xff"
        values = (b"bad_json", b"x", b"forward", b"/forward/h", b"-", b"u." + b"0" * 32, b"1/1", b"00", b"{}")
        headers = list(zip(QUARANTINE_HEADERS, values, strict=True))
        stored = await producer.send_and_wait(kafka.quarantine_topic, raw, partition=partition, headers=headers)
        sent.quarantined[kafka.quarantine_topic, partition, stored.offset] = (raw, "bad_json")


def send_now(kafka: KafkaSettings, sent: Sent, records: int, **options: object) -> None:
    asyncio.run(send(kafka, sent, records, **options))  # type: ignore[arg-type]


def check_landed(lake: Path, sent: Sent) -> None:
    """Checks that every record is in the tables once, with its content, and that the named proof holds."""
    landed = query.run('select topic, "partition", "offset", event_id, body from events', lake)
    rejected = query.run('select topic, "partition", "offset", raw, reason from quarantine', lake)
    places = [(row["topic"], row["partition"], row["offset"]) for row in landed]
    assert len(places) == len(set(places)), f"{len(places) - len(set(places))} rows of the events table are doubles"
    found = {place: (row["event_id"], row["body"]) for place, row in zip(places, landed, strict=True)}
    assert found.keys() == sent.events.keys(), _difference(found, sent.events)
    assert found == sent.events
    places = [(row["topic"], row["partition"], row["offset"]) for row in rejected]
    assert len(places) == len(set(places)), f"{len(places) - len(set(places))} rows of quarantine are doubles"
    kept = {place: (bytes(row["raw"]), row["reason"]) for place, row in zip(places, rejected, strict=True)}
    assert kept.keys() == sent.quarantined.keys(), _difference(kept, sent.quarantined)
    assert kept == sent.quarantined
    proof = exactly_once(lake)
    assert all(row["ok"] for row in proof), proof
    sums = "select sum(records)::bigint as n, (select count(*) from duplicates) as resent from batches"
    (total,) = query.run(sums, lake)
    assert total == {"n": len(sent.events) + len(sent.quarantined) + sent.resent, "resent": sent.resent}


def _difference(found: Mapping[Any, object], wanted: Mapping[Any, object]) -> str:
    missing, extra = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    return f"{len(missing)} missing, e.g. {missing[:3]}; {len(extra)} too many, e.g. {extra[:3]}"
