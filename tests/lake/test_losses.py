"""Logjam: a query over what has landed says which numbers no consumer has stored."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import zmq.asyncio
from headrace_common.record.contract import Reason
from headrace_reader.logjam import LOSSES

from tests.contract.topic import events, quarantined
from tests.contract.waiting import until
from tests.lake.runs import Runs
from tests.logjam.driving import event
from tests.logjam.test_devices import Device, consumer
from tests.tiers import sized

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def lost(runs: Runs) -> set[tuple[int, int, int]]:
    return {(row["device"], row["from_sequence"], row["to_sequence"]) for row in runs.query(LOSSES)}


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
