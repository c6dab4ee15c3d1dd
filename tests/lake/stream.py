"""Fills topics, and checks that the tables hold what they must."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiokafka import AIOKafkaProducer
from headrace_cli.verbs import query
from headrace_common.operations.settings import KafkaSettings
from headrace_common.record.contract import HEADERS, QUARANTINE_HEADERS
from headrace_common.record.event import rfc3339_ms
from headrace_reader.address import LakeAddress
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


def send_now(kafka: KafkaSettings, sent: Sent, records: int, *, mark: str = "a", resend_every: int = 0) -> None:
    """Sends `records` records to the events topic's partitions, every 50th one bad, and some to quarantine.

    With `resend_every`, every such record repeats the event before it.
    """
    asyncio.run(_send(kafka, sent, records, mark, resend_every))


async def _send(kafka: KafkaSettings, sent: Sent, records: int, mark: str, resend_every: int) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, enable_idempotence=True, acks="all", compression_type="zstd",
        max_batch_size=1 << 20,
    )  # fmt: skip
    await producer.start()
    try:
        for partition in range(PARTITIONS):
            for start in range(0, records // PARTITIONS, 500):
                batch, expected = producer.create_batch(), []
                for position in range(start, min(start + 500, records // PARTITIONS)):
                    again = bool(resend_every) and position % resend_every == resend_every - 1
                    body, headers, row = _event(partition, position - again, mark)
                    assert batch.append(key=None, value=body, timestamp=None, headers=headers) is not None
                    expected.append(None if again and row[0] else row)
                batch.close()
                stored = await (await producer.send_batch(batch, kafka.events_topic, partition=partition))
                for offset, found in enumerate(expected, stored.offset):
                    if found is None:
                        sent.resent += 1
                        continue
                    good, what = found
                    place = (kafka.events_topic, partition, offset)
                    (sent.events if good else sent.quarantined)[place] = what  # type: ignore[assignment]
        for partition in range(3):
            await _send_rejects(producer, kafka, sent, records // 100, partition, mark)
    finally:
        await producer.stop()


def _event(partition: int, index: int, mark: str) -> tuple[bytes, list[tuple[str, bytes]], tuple[bool, object]]:
    """Returns an event's body and headers; whether it is good, and the row that it becomes."""
    body = json.dumps({"mark": mark, "partition": partition, "index": index, "text": "x" * 100}).encode()
    event_id = f"d.{mark.encode().hex():0>16}{partition:08x}{index:08x}"
    values = (
        b"1.0", event_id.encode(), b"/forward/host-%d" % partition, b"headrace.forward.event", b"app.web",
        rfc3339_ms(NOW + index), b"application/json", b'{"index":%d}' % index,
    )  # fmt: skip
    headers = list(zip(HEADERS, values, strict=True))
    if index % 50 != 7:
        return body, headers, (True, (event_id, body.decode()))
    if index // 50 % 2:
        return body, headers[1:], (False, (body, "missing_header"))
    return body, [*headers, headers[1]], (False, (body, "repeated_header"))


async def _send_rejects(
    producer: AIOKafkaProducer, kafka: KafkaSettings, sent: Sent, count: int, partition: int, mark: str
) -> None:
    for index in range(count):
        raw = f"{mark} {partition} {index} ".encode() + b"\xff"
        values = (b"bad_json", b"x", b"forward", b"/forward/h", b"-", b"u." + b"0" * 32, b"1/1", b"00", b"{}")
        headers = list(zip(QUARANTINE_HEADERS, values, strict=True))
        stored = await producer.send_and_wait(kafka.quarantine_topic, raw, partition=partition, headers=headers)
        sent.quarantined[kafka.quarantine_topic, partition, stored.offset] = (raw, "bad_json")


def check_landed(lake: LakeAddress, sent: Sent) -> None:
    """Checks that every record is in the tables once, with its content, and that the named proof holds."""
    tables: tuple[tuple[str, str, Mapping[Place, object]], ...] = (
        ("events", "event_id, body", sent.events), ("quarantine", "raw, reason", sent.quarantined),
    )  # fmt: skip
    for table, columns, wanted in tables:
        rows = query.run(f'select topic, "partition", "offset", {columns} from {table}', lake)
        found = {tuple(row.values())[:3]: tuple(row.values())[3:] for row in rows}
        assert len(found) == len(rows), f"{len(rows) - len(found)} rows of {table} are doubles"
        missing, extra = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
        assert not missing, f"{len(missing)} of {table} are missing, e.g. {missing[:3]}"
        assert not extra, f"{len(extra)} of {table} are too many, e.g. {extra[:3]}"
        assert found == wanted
    proof = exactly_once(lake)
    assert all(row["ok"] for row in proof), proof
    sums = "select sum(records)::bigint as n, (select count(*) from duplicates) as resent from batches"
    (total,) = query.run(sums, lake)
    assert total == {"n": len(sent.events) + len(sent.quarantined) + sent.resent, "resent": sent.resent}
