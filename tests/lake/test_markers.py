"""Logjam gaps: a consumer's marker becomes a row of `gaps`; a query says whether other records have the numbers."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
import zmq.asyncio
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from headrace_common.kafka.client import client_arguments
from headrace_common.record.contract import GAP_TYPE, HEADERS, Reason
from headrace_lake.landing.landing import Landing
from headrace_logjam.devices.positions import GROUP
from headrace_reader.logjam import GAPS

from tests.contract.topic import events, quarantined
from tests.contract.waiting import until
from tests.lake.runs import Runs
from tests.logjam.driving import event
from tests.logjam.test_devices import GAP, Device, consumer
from tests.tiers import sized

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SOURCE = "/logjam/tcp%3A%2F%2Fdevice-1%3A9606"
CREATED = 1_770_000_000_000


def record(
    name: str, *, kind: str, value: dict[str, Any], attributes: dict[str, Any], source: str = SOURCE
) -> tuple[bytes, list[Any]]:
    values = (
        "1.0", f"d.{hashlib.md5(name.encode()).hexdigest()}", source, kind, "app-env", "2026-05-06T12:00:00Z", "application/json",
        json.dumps(attributes),
    )  # fmt: skip
    return json.dumps(value).encode(), [(key, text.encode()) for key, text in zip(HEADERS, values, strict=True)]


def message(number: int, *, device: int = 7, created: int = CREATED, source: str = SOURCE) -> tuple[bytes, list[Any]]:
    attributes = {"device": device, "sequence": number, "created": created}
    name = f"{source} {device} {number} {created}"
    return record(name, kind="headrace.logjam.event", value={"n": number}, attributes=attributes, source=source)


def marker(
    start: object, end: object, *, device: object = 7, consumer: str = "a", **more: object
) -> tuple[bytes, list[Any]]:
    value = {"consumer": consumer, "device": device, "from": start, "to": end, **more}
    return record(f"{consumer} {device} {start} {end}", kind=GAP_TYPE, value=value, attributes={})


def send(runs: Runs, *records: tuple[bytes, list[Any]], received: int | None = None) -> None:
    async def act() -> None:
        async with AIOKafkaProducer(bootstrap_servers=runs.kafka.bootstrap_servers) as producer:
            for value, headers in records:
                await producer.send_and_wait(
                    runs.kafka.events_topic, value, partition=1, headers=headers, timestamp_ms=received
                )

    asyncio.run(act())


def found(runs: Runs) -> dict[tuple[Any, ...], bool]:
    rows = runs.query(f"select * from ({GAPS}) where reason = 'logjam'")
    return {(row["device"], row["from_sequence"], row["to_sequence"]): row["covered"] for row in rows}


def test_a_marker_becomes_a_gap_that_other_consumers_cover(runs: Runs) -> None:
    elsewhere = "/logjam/tcp%3A%2F%2Fdevice-2%3A9606"
    sent = [marker(5, 10), marker(20, 22), marker(5, 6, device=8), marker("x", None)]
    send(runs, message(4), message(10), *sent, sent[0])
    runs.run()
    assert found(runs) == {(7, 5, 10): False, (7, 20, 22): False, (8, 5, 6): False, (7, None, None): False}
    (row,) = runs.query("select * from gaps where from_sequence = 20")
    assert (row["source"], row["consumer"], row["from"], row["to"], row["offset"]) == (SOURCE, "a", None, None, 3)
    assert json.loads(row["detail"])["to"] == 22
    assert runs.query("select count(*) as n from events") == [{"n": 6}], "a marker is an event too"

    send(runs, *(message(n) for n in (5, 6, 7, 9)), message(8, source=elsewhere), message(8, device=6))
    runs.run()
    assert not any(found(runs).values())
    send(runs, message(8), message(21), sent[0])  # published once more
    runs.run()
    assert found(runs) == {(7, 5, 10): True, (7, 20, 22): False, (8, 5, 6): False, (7, None, None): False}
    send(runs, message(20), message(5, device=8))
    runs.run()
    assert found(runs) == {(7, 5, 10): True, (7, 20, 22): True, (8, 5, 6): True, (7, None, None): False}
    assert runs.proven()
    assert len(runs.query("select * from gaps")) == 4, "a marker is one row"
    assert runs.query("select count(*) as n from duplicates") == [{"n": 2}]


@pytest.mark.full
def test_numbers_of_another_life_of_the_device_cover_nothing(runs: Runs) -> None:
    """When they were received says so. When they were made does not: a producer's clock may be years ahead."""
    now = int(time.time() * 1000)
    bounds: dict[str, Any] = {"after": now - 60_000, "before": now - 50_000}
    send(runs, message(5, created=now - 55_000), received=now - 70_000)
    send(runs, message(6, created=now - 55_000), received=now - 40_000)
    send(runs, marker(5, 7, **bounds), received=now - 50_000)
    runs.run()
    assert found(runs) == {(7, 5, 7): False}
    for number, at in ((5, now - 64_000), (6, now - 46_000)):
        send(runs, message(number, created=now + 10 * 31_557_600_000), received=at)
    runs.run()
    assert found(runs) == {(7, 5, 7): True}


def test_what_was_before_a_consumer_is_no_loss(runs: Runs) -> None:
    send(runs, marker(1, 5), marker(1, 5, device=8, after=CREATED, before=CREATED))
    runs.run()
    rows = runs.query("select device, reason from gaps order by device")
    assert rows == [{"device": 7, "reason": "joined"}, {"device": 8, "reason": "logjam"}]


@pytest.mark.full
def test_a_marker_is_one_row_however_often_its_batch_is_landed(runs: Runs) -> None:
    send(runs, marker(5, 10), message(4))
    for loses_checkpoint in (False, True):
        runs.killed_at(Landing, "_summary")
        assert found(runs) == {(7, 5, 10): False}
        if loses_checkpoint:
            runs.lose_checkpoint()
    runs.run()
    assert len(runs.query("select * from gaps")) == 1
    assert runs.proven()


AWAY = sized(1, 4, 20)
"""Seconds for which one of the two is dead."""


async def consumed(runs: Runs, folder: Path) -> int:
    """Both consume; one is killed and comes again; the last number."""
    context = zmq.asyncio.Context()
    device = Device(context)
    receivers = {}
    for name in ("a", "b"):
        receivers[name] = consumer(runs.kafka, folder / name, {"one": device}, logjam={"consumer": name})
        await receivers[name].start()
    try:
        await device.joined(2)
        await device.send(50)
        await device.beat()
        for receiver in receivers.values():
            await until(lambda receiver=receiver: _stored(receiver.metric("events_stored_total"), 51), "both have all")
        await until(lambda: _remembered(runs, "a"), "one knows after its kill how far it was: else it has just joined")
        receivers["a"].kill()
        await device.left(1)
        for _ in range(10):
            await device.send(10)
            await device.beat()
            device.sequence += 1
            about: dict[str, Any] = {"device": 7, "sequence": device.sequence, "created_ms": device.clock}
            await device.say(event(b"no JSON", **about))  # goes to quarantine, and has a number too
            await asyncio.sleep(AWAY / 10)
        await receivers["a"].start()
        await device.joined(2)
        await device.send(30)

        async def complete() -> bool:
            records = await events(runs.kafka)
            ours = [record for record in records if record["ce_type"] != GAP]
            # what both have, what b alone has, and the marker of a
            return len(ours) >= 2 * 81 + 110 and len(records) > len(ours)

        await until(complete, "all is stored")
        assert {record["reason"] for record in await quarantined(runs.kafka)} == {Reason.BAD_JSON}
        return device.sequence
    finally:
        for receiver in receivers.values():
            receiver.stop()
        context.destroy(linger=0)


async def _remembered(runs: Runs, name: str) -> bool:
    admin = AIOKafkaAdminClient(**client_arguments(runs.kafka))
    try:
        await admin.start()
        found = await admin.list_consumer_group_offsets(GROUP + name)
    finally:
        await admin.close()
    return any(each.metadata for each in found.values())


async def _stored(metric: object, count: int) -> bool:
    return await metric >= count  # type: ignore[misc]


def test_the_other_covers_the_gap_of_the_one_that_was_killed(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "receivers").mkdir()
    last = asyncio.run(consumed(runs, tmp_path / "receivers"))
    runs.run()
    rows = runs.query("select attributes from events where source = '/logjam/one' and stream != '-'")
    kept = {row["attributes"] for row in runs.query("select attributes from quarantine")}
    found = [json.loads(text)["sequence"] for text in (*(row["attributes"] for row in rows), *kept)]
    assert sorted(found) == list(range(1, last + 1))  # one row an event
    gaps = runs.query(f"select consumer, covered, from_sequence, to_sequence from ({GAPS})")
    assert gaps
    assert {(gap["consumer"], gap["covered"]) for gap in gaps} == {("a", True)}
    assert gaps[0]["to_sequence"] - gaps[0]["from_sequence"] >= 120
    assert runs.proven()
