"""Logjam: a consumer's marker becomes a row of `gaps`; a query says which numbers no consumer has stored."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import zmq.asyncio
from aiokafka import AIOKafkaProducer
from headrace_common.record.contract import GAP_TYPE, HEADERS, Reason
from headrace_lake.landing.landing import Landing
from headrace_reader.logjam import LOSSES

from tests.contract.topic import events, quarantined
from tests.contract.waiting import until
from tests.lake.runs import Runs
from tests.logjam.driving import event
from tests.logjam.test_devices import Device, consumer
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
    start = {"start": created, "restarts": 0, "consumer": "a"}
    attributes = {"device": device, "sequence": number, "created": created, **start}
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


def found(runs: Runs) -> set[tuple[int, int, int]]:
    rows = runs.query("select * from gaps where reason = 'logjam'")
    return {(row["device"], row["from_sequence"], row["to_sequence"]) for row in rows}


def lost(runs: Runs) -> set[tuple[int, int, int]]:
    return {(row["device"], row["from_sequence"], row["to_sequence"]) for row in runs.query(LOSSES)}


def test_a_marker_becomes_a_gap_and_what_others_have_is_not_lost(runs: Runs) -> None:
    elsewhere = "/logjam/tcp%3A%2F%2Fdevice-2%3A9606"
    sent = [marker(5, 10), marker("x", None)]
    send(runs, message(4), message(10), *sent, sent[0])
    runs.run()
    assert found(runs) == {(7, 5, 10), (7, None, None)}
    (row,) = runs.query("select * from gaps where from_sequence = 5")
    assert (row["source"], row["consumer"], row["from"], row["to"], row["offset"]) == (SOURCE, "a", None, None, 2)
    assert json.loads(row["detail"])["to"] == 10
    assert runs.query("select count(*) as n from events") == [{"n": 4}], "a marker is an event too"
    assert lost(runs) == {(7, 5, 10)}

    send(runs, *(message(n) for n in (5, 6, 7, 9)), message(8, source=elsewhere), message(8, device=6), sent[0])
    runs.run()
    assert lost(runs) == {(7, 8, 9)}
    send(runs, message(8))
    runs.run()
    assert lost(runs) == set()
    assert runs.proven()
    assert len(found(runs)) == 2, "a marker is one row"


@pytest.mark.full
def test_a_marker_is_one_row_however_often_its_batch_is_landed(runs: Runs) -> None:
    send(runs, marker(5, 10), message(4))
    for loses_checkpoint in (False, True):
        runs.killed_at(Landing, "_summary")
        assert found(runs) == {(7, 5, 10)}
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
            return len(records) >= 2 * 81 + 110  # what both have, and what b alone has

        await until(complete, "all is stored")
        assert {record["reason"] for record in await quarantined(runs.kafka)} == {Reason.BAD_JSON}
        return device.sequence
    finally:
        for receiver in receivers.values():
            receiver.stop()
        context.destroy(linger=0)


async def _stored(metric: object, count: int) -> bool:
    return await metric >= count  # type: ignore[misc]


def test_the_other_has_what_the_one_that_was_killed_has_not(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "receivers").mkdir()
    last = asyncio.run(consumed(runs, tmp_path / "receivers"))
    runs.run()
    rows = runs.query("select attributes from events where source = '/logjam/one' and stream != '-'")
    kept = {row["attributes"] for row in runs.query("select attributes from quarantine")}
    found = [json.loads(text)["sequence"] for text in (*(row["attributes"] for row in rows), *kept)]
    assert sorted(found) == list(range(1, last + 1))  # one row an event
    assert lost(runs) == set()
    alone = 'select count(*) as n from (select * from events where attributes not like \'%"consumer":"b"%\')'
    assert runs.query(alone)[0]["n"] <= last - 110, "what the other had missed"
    assert runs.proven()
