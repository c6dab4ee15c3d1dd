"""Offsets that Kafka deleted before they were landed: the job stops and names them, and continues once that is accepted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from headrace_lake.landing.landing import Landing
from headrace_lake.spark.halt import GapError
from headrace_lake.tables.fence import claim_of
from headrace_lake.tables.layout import BATCHES, GAPS

from tests.lake.lander import version
from tests.lake.runs import Runs
from tests.lake.stream import Sent, check_landed

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def losses(runs: Runs) -> list[tuple[Any, ...]]:
    columns = 'reason, topic, "partition", "from", "to", "rows"'
    return [tuple(row.values()) for row in runs.query(f"select {columns} from gaps order by all")]


def check_without(runs: Runs, offsets: dict[int, range]) -> None:
    """Checks that everything sent has landed, except these offsets of partitions of the events topic."""
    lost = {(runs.kafka.events_topic, partition, offset) for partition in offsets for offset in offsets[partition]}
    kept = Sent(
        {place: what for place, what in runs.sent.events.items() if place not in lost},
        {place: what for place, what in runs.sent.quarantined.items() if place not in lost},
    )
    check_landed(runs.lake, kept)


def test_retention_at_start_stops_the_job_until_it_is_accepted(runs: Runs) -> None:
    """No gaps: what was deleted before the first start, though a partition had nothing else; what was landed; aborted records."""
    topic = runs.kafka.events_topic
    runs.send(400)
    asyncio.run(_transactions(runs))
    runs.delete_records({1: 30, 2: 100})
    runs.run(accept_loss=True)  # there is nothing to accept
    assert losses(runs) == []
    runs.send(800, mark="b")
    runs.delete_records({2: 150})
    before = version(runs.lake, BATCHES)
    with pytest.raises(GapError, match=rf"{topic}/2: 100 to 149\. .* python -m headrace_lake --accept-loss") as refused:
        runs.run()
    assert "50 offsets" in str(refused.value)
    assert version(runs.lake, BATCHES) == before
    assert losses(runs) == []

    runs.run(accept_loss=True)
    assert losses(runs) == [("retention", topic, 2, 100, 150, 0)]
    assert version(runs.lake, GAPS) == claim_of(2), "it came with the claim"
    assert [line["lost"] for line in runs.said("accepts a loss")] == [f"{topic}/2: 100 to 149"]
    asyncio.run(_transactions(runs))
    runs.run()  # its batch holds offsets, and no record
    runs.delete_records({3: 60})  # it was landed
    runs.send(400, mark="c")
    runs.run()
    check_without(runs, {1: range(30), 2: range(150)})
    assert len(losses(runs)) == 1
    (row,) = runs.query('select sum("to" - "from" - records) as unseen from batches')
    assert row["unseen"] > 40


def test_retention_while_it_runs_stops_the_job(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is already planned when Kafka deletes its beginning."""
    runs.send(400)
    runs.run()
    runs.send(800, mark="b")
    whole = Landing._check_contiguous

    def deletes_first(self: Landing, ranges: Any) -> None:
        runs.delete_records({2: 150})
        whole(self, ranges)

    with monkeypatch.context() as patched:
        patched.setattr(Landing, "_check_contiguous", deletes_first)
        with pytest.raises(GapError, match=rf"{runs.kafka.events_topic}/2: 100 to 149\. "):
            runs.run(once=False)
    runs.run(accept_loss=True)
    assert losses(runs) == [("retention", runs.kafka.events_topic, 2, 100, 150, 0)]
    check_without(runs, {2: range(100, 150)})


def test_a_recreated_topic_is_not_taken_for_the_old_one(runs: Runs) -> None:
    runs.send(400)
    runs.run()
    landed = dict(runs.sent.events)
    recreate(runs)
    runs.sent.events.clear()
    runs.send(1_200, mark="b")  # longer than the old one was: no offset tells them apart
    with pytest.raises(
        GapError, match=rf"{runs.kafka.events_topic}/0 \(id .*, recreated\): from 100 on; .* --accept-loss"
    ):
        runs.run()
    (row,) = runs.query("select count(*) as n from events")
    assert row["n"] == len(landed)
    runs.run(accept_loss=True)
    (row,) = runs.query("select count(*) as n, count(distinct topic_id) as ids from events")
    assert row == {"n": len(landed) + len(runs.sent.events), "ids": 2}
    assert [loss[0] for loss in losses(runs)] == ["recreated"] * 4
    assert {loss[2:5] for loss in losses(runs)} == {(n, 100, None) for n in range(4)}
    assert runs.proven()
    runs.run()


def recreate(runs: Runs) -> None:
    async def act(admin: AIOKafkaAdminClient) -> None:
        await admin.delete_topics([runs.kafka.events_topic])
        while runs.kafka.events_topic in await admin.list_topics():  # noqa: ASYNC110  (the broker has no event for it)
            await asyncio.sleep(0.05)
        await admin.create_topics([NewTopic(runs.kafka.events_topic, 4, 1)])

    runs.admin(act)


async def _transactions(runs: Runs) -> None:
    """Sends an aborted transaction."""
    producer = AIOKafkaProducer(bootstrap_servers=runs.kafka.bootstrap_servers, transactional_id="t", acks="all")
    async with producer:
        await producer.begin_transaction()
        for index in range(20):
            await producer.send_and_wait(runs.kafka.events_topic, b"%d" % index, partition=0)
        await producer.abort_transaction()
