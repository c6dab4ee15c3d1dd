"""Two consumers of one device: one row an event, and the other's records cover the gap of the one that was killed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import zmq.asyncio
from aiokafka.admin import AIOKafkaAdminClient
from headrace_common.kafka.client import client_arguments
from headrace_common.record.contract import Reason
from headrace_logjam.devices.positions import GROUP

from tests.contract.topic import events, quarantined
from tests.contract.waiting import until
from tests.lake.runs import Runs
from tests.lake.test_markers import message, send
from tests.logjam.driving import event
from tests.logjam.test_devices import GAP, Device, consumer
from tests.tiers import sized

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

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
            about = {"device": 7, "sequence": device.sequence, "created_ms": device.clock}
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
    assert {gap["covered"] for gap in runs.query("select covered from gaps")} == {False}
    send(runs, message(1))  # of another device: the next batch
    runs.run(gaps_every=0)
    rows = runs.query("select attributes from events where source = '/logjam/one' and stream != '-'")
    kept = {row["attributes"] for row in runs.query("select attributes from quarantine")}
    found = [json.loads(text)["sequence"] for text in (*(row["attributes"] for row in rows), *kept)]
    assert sorted(found) == list(range(1, last + 1))  # one row an event
    gaps = runs.query("select consumer, covered, from_sequence, to_sequence from gaps")
    assert gaps
    assert {(gap["consumer"], gap["covered"]) for gap in gaps} == {("a", True)}
    assert gaps[0]["to_sequence"] - gaps[0]["from_sequence"] >= 120
    assert runs.proven()
