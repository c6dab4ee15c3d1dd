"""Fills topics, and checks that the tables hold what they must."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from aiokafka import AIOKafkaProducer
from headrace_cli.verbs import query
from headrace_common.operations.settings import KafkaSettings
from headrace_common.record.contract import HEADERS, QUARANTINE_HEADERS
from headrace_common.record.event import rfc3339_ms
from headrace_reader.address import LakeAddress
from headrace_reader.proof import exactly_once

Place = tuple[str, int, int]
Row = tuple[bool, object]
"""Whether a record is a good event, and what lands of it."""
PARTITIONS = 4
NOW = 1_770_000_000_000


class Message(NamedTuple):
    """A record to send. `at`: its time in ms since 1970; None: now."""

    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    at: int | None = None
    key: bytes | None = None


Batch = tuple[str, int, Sequence[Message]]
"""Topic, partition, and records that Kafka stores as one."""


def put(kafka: KafkaSettings, batches: Iterable[Batch]) -> list[int]:
    """Stores the batches one after another, each of at most 4 MB; returns the offsets at which they begin."""
    return asyncio.run(_put(kafka, batches))


async def _put(kafka: KafkaSettings, batches: Iterable[Batch]) -> list[int]:
    offsets = []
    async with AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers,
        enable_idempotence=True,
        compression_type="zstd",
        max_batch_size=1 << 22,
    ) as producer:
        for topic, partition, messages in batches:
            batch = producer.create_batch()
            for message in messages:
                fits = batch.append(
                    key=message.key, value=message.value, timestamp=message.at, headers=[*message.headers]
                )
                assert fits is not None
            batch.close()
            offsets.append((await (await producer.send_batch(batch, topic, partition=partition))).offset)
    return offsets


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
    whole = range(records // PARTITIONS)
    batches = [
        (kafka.events_topic, partition, [_event(partition, index, mark, resend_every) for index in some])
        for partition in range(PARTITIONS)
        for some in (whole[start : start + 500] for start in whole[::500])
    ]
    batches += [
        (kafka.quarantine_topic, partition, [_reject(partition, index, mark) for index in range(records // 100)])
        for partition in range(3)
    ]
    offsets = put(kafka, [(topic, partition, [message for message, _ in pairs]) for topic, partition, pairs in batches])
    for (topic, partition, pairs), first in zip(batches, offsets, strict=True):
        for offset, (_, row) in enumerate(pairs, first):
            if row is None:
                sent.resent += 1
            else:
                good, what = row
                (sent.events if good else sent.quarantined)[topic, partition, offset] = what  # type: ignore[assignment]


def headers_of(name: str, source: str, *, protocol: str = "forward", index: int = 1) -> list[tuple[str, bytes]]:
    """The headers of an event, by its id."""
    values = (
        b"1.0", name.encode(), source.encode(), f"headrace.{protocol}.event".encode(), b"app.web",
        rfc3339_ms(NOW + index), b"application/json", b'{"index":%d}' % index,
    )  # fmt: skip
    return list(zip(HEADERS, values, strict=True))


def _event(partition: int, position: int, mark: str, resend_every: int) -> tuple[Message, Row | None]:
    again = bool(resend_every) and position % resend_every == resend_every - 1
    index = position - again
    body = json.dumps({"mark": mark, "partition": partition, "index": index, "text": "x" * 100}).encode()
    event_id = f"d.{mark.encode().hex():0>16}{partition:08x}{index:08x}"
    headers = headers_of(event_id, f"/forward/host-{partition}", index=index)
    if index % 50 != 7:
        return Message(body, headers), None if again else (True, (event_id, body.decode()))
    if index // 50 % 2:
        return Message(body, headers[1:]), (False, (body, "missing_header"))
    return Message(body, [*headers, headers[1]]), (False, (body, "repeated_header"))


def _reject(partition: int, index: int, mark: str) -> tuple[Message, Row | None]:
    raw = f"{mark} {partition} {index} ".encode() + b"\xff"
    values = (b"bad_json", b"x", b"forward", b"/forward/h", b"-", b"u." + b"0" * 32, b"1/1", b"00", b"{}")
    return Message(raw, list(zip(QUARANTINE_HEADERS, values, strict=True))), (False, (raw, "bad_json"))


def check_landed(lake: LakeAddress, sent: Sent) -> None:
    """Checks the same, and that `batches` and `duplicates` count all that was sent."""
    check_rows(lake, sent)
    sums = "select sum(records)::bigint as n, (select count(*) from duplicates) as resent from batches"
    (total,) = query.run(sums, lake)
    assert total == {"n": len(sent.events) + len(sent.quarantined) + sent.resent, "resent": sent.resent}


def check_rows(lake: LakeAddress, sent: Sent) -> None:
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
