"""Offsets that Kafka deleted before they were landed: the job stops and names them, and continues once that is accepted."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from headrace_cli.verbs import query
from headrace_common.operations.settings import KafkaSettings, TopicSettings
from headrace_common.record.contract import HEADERS
from headrace_common.topics import ensure
from headrace_lake.kafka import gaps
from headrace_lake.landing.landing import Landing
from headrace_lake.spark.halt import GapError, HaltError
from headrace_lake.tables.fence import claim_of
from headrace_lake.tables.layout import BATCHES, GAPS
from pyspark.sql import SparkSession

from tests.contract.embedded import EmbeddedKafka
from tests.contract.waiting import until
from tests.lake.lander import TIMEOUT, version
from tests.lake.runs import Runs
from tests.lake.stream import Sent, check_landed

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def losses(runs: Runs) -> list[tuple[Any, ...]]:
    columns = 'reason, topic, "partition", "from", "to", "rows"'
    return [tuple(row.values()) for row in runs.query(f"select {columns} from gaps order by all")]


def check_without(runs: Runs, partition: int, start: int, end: int) -> None:
    """Checks that everything sent has landed, except these offsets of the events topic."""
    lost = {(runs.kafka.events_topic, partition, offset) for offset in range(start, end)}
    kept = Sent(
        {place: what for place, what in runs.sent.events.items() if place not in lost},
        {place: what for place, what in runs.sent.quarantined.items() if place not in lost},
    )
    check_landed(runs.lake, kept)


@pytest.mark.parametrize("loses_checkpoint", [False, pytest.param(True, marks=pytest.mark.full)])
def test_retention_at_start_stops_the_job_until_it_is_accepted(runs: Runs, loses_checkpoint: bool) -> None:
    topic = runs.kafka.events_topic
    runs.send(400)
    runs.run(accept_loss=True)  # there is nothing to accept
    runs.send(800, mark="b")
    runs.delete_records({2: 150})
    if loses_checkpoint:
        runs.lose_checkpoint()
    before = version(runs.lake, BATCHES)
    with pytest.raises(GapError, match=rf"{topic}/2: 100 to 149\. .* python -m headrace_lake --accept-loss") as refused:
        runs.run()
    assert "50 offsets" in str(refused.value)
    assert version(runs.lake, BATCHES) == before
    assert losses(runs) == []

    runs.run(accept_loss=True)
    assert losses(runs) == [("retention", topic, 2, 100, 150, 0)]
    assert version(runs.lake, GAPS) == claim_of(2), "it came with the claim"
    check_without(runs, 2, 100, 150)
    assert [line["lost"] for line in runs.said("accepts a loss")] == [f"{topic}/2: 100 to 149"]
    (row,) = runs.query(f'select "from" from batches where topic = \'{topic}\' and "partition" = 2 and "from" > 100')
    assert row["from"] == 150
    runs.send(400, mark="c")
    runs.run()
    check_without(runs, 2, 100, 150)
    assert len(losses(runs)) == 1


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
    check_without(runs, 2, 100, 150)


@pytest.mark.full
def test_rows_of_a_batch_half_done_are_kept_and_counted_in_the_gap(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = runs.kafka.events_topic
    runs.send(400)
    runs.run()
    runs.send(800, mark="b")
    with monkeypatch.context() as patched:
        patched.setattr(Landing, "_land_quarantine", _dies)
        with pytest.raises(HaltError, match="killed here"):
            runs.run()  # events are written, quarantine and batches are not
    runs.delete_records({2: 150})
    with pytest.raises(GapError):
        runs.run()
    runs.run(accept_loss=True)
    kept = sum((topic, 2, offset) in runs.sent.events for offset in range(100, 150))
    assert 0 < kept < 50
    assert losses(runs) == [("retention", topic, 2, 100, 150, kept)]
    for place in [place for place in runs.sent.quarantined if place[:2] == (topic, 2) and 100 <= place[2] < 150]:
        del runs.sent.quarantined[place]
    proof = query.exactly_once(runs.lake)
    assert all(row["ok"] for row in proof), proof
    assert f"lost_offsets {50 - kept}" in proof[-1]["detail"]
    landed = {(row["topic"], row["partition"], row["offset"]) for row in runs.query("select * from events")}
    assert landed == runs.sent.events.keys()


@pytest.mark.full
def test_an_acceptance_that_is_killed_is_tried_again(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.send(400)
    runs.run()
    runs.send(800, mark="b")
    runs.delete_records({1: 180, 2: 150})
    with monkeypatch.context() as patched:  # the checkpoint is void, three tables are claimed
        patched.setattr(gaps, "rows", _dies)
        with pytest.raises(RuntimeError, match="killed here"):
            runs.run(accept_loss=True)
    assert losses(runs) == []
    with pytest.raises(GapError, match=r"/1: 100 to 179; .*/2: 100 to 149\. "):
        runs.run()
    runs.run(accept_loss=True)
    assert [loss[2:5] for loss in losses(runs)] == [(1, 100, 180), (2, 100, 150)]
    assert runs.proven()
    runs.run()
    assert runs.query("select max(epoch) as n from batches") == [{"n": 3}]


@pytest.mark.full
def test_what_was_deleted_before_the_first_start_is_no_gap(runs: Runs) -> None:
    runs.send(400)
    runs.delete_records({2: 30})
    runs.run()
    assert losses(runs) == []
    assert runs.proven()


@pytest.mark.full
def test_a_partition_that_is_idle_since_before_the_first_start_has_no_gap(runs: Runs) -> None:
    runs.send(400)
    runs.delete_records({2: 100})  # all that it had
    runs.run()
    runs.run()
    runs.lose_checkpoint()
    runs.run()
    landed = f"""select distinct "partition" from batches where topic = '{runs.kafka.events_topic}' order by all"""
    assert runs.query(landed) == [{"partition": number} for number in (0, 1, 3)]
    assert losses(runs) == []
    assert runs.proven()
    runs.send(400, mark="b")
    runs.delete_records({2: 130})
    with pytest.raises(GapError, match="/2: 100 to 129"):
        runs.run()


@pytest.mark.parametrize("loses_checkpoint", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_recreated_topic_is_not_taken_for_the_old_one(runs: Runs, loses_checkpoint: bool) -> None:
    runs.send(400)
    runs.run()
    landed = dict(runs.sent.events)
    recreate(runs)
    runs.sent.events.clear()
    runs.send(1_200, mark="b")  # longer than the old one was: no offset tells them apart
    if loses_checkpoint:
        runs.lose_checkpoint()
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


@pytest.mark.full
def test_a_recreated_topic_before_anything_of_it_was_landed(runs: Runs) -> None:
    job = runs.job(once=False)
    thread = threading.Thread(target=job.run)
    thread.start()
    while not runs.said("landing"):
        assert thread.is_alive()
        thread.join(0.05)
    job.stop()
    thread.join(TIMEOUT)
    recreate(runs)
    runs.send(400)
    with pytest.raises(GapError, match=r"recreated\): of all partitions"):
        runs.run()
    runs.run(accept_loss=True)
    runs.check()
    assert [loss[:4] for loss in losses(runs)] == [("recreated", runs.kafka.events_topic, None, 0)]
    runs.lose_checkpoint()
    runs.run()
    runs.check()


def recreate(runs: Runs) -> None:
    async def act(admin: AIOKafkaAdminClient) -> None:
        await admin.delete_topics([runs.kafka.events_topic])
        while runs.kafka.events_topic in await admin.list_topics():  # noqa: ASYNC110  (the broker has no event for it)
            await asyncio.sleep(0.05)
        await admin.create_topics([NewTopic(runs.kafka.events_topic, 4, 1)])

    runs.admin(act)


@pytest.mark.full
def test_aborted_offsets_and_deletion_of_what_was_landed_are_no_gaps(runs: Runs) -> None:
    asyncio.run(_transactions(runs))
    runs.send(400)
    asyncio.run(_transactions(runs))
    runs.run(batch_records=250)
    runs.check()
    runs.delete_records({0: 60, 2: 100})  # all of it was landed
    runs.send(400, mark="b")
    asyncio.run(_transactions(runs))
    runs.lose_checkpoint()
    runs.run()
    runs.check()
    assert losses(runs) == []
    (row,) = runs.query('select sum("to" - "from" - records) as unseen from batches')
    assert row["unseen"] > 60


@pytest.mark.full
def test_what_a_compacted_topic_no_longer_has_is_no_gap(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Headrace sets no keys, but a topic may be compacted all the same: then the last record of each key stays."""
    names = KafkaSettings(
        bootstrap_servers=kafka.bootstrap, events_topic="events.compacted", quarantine_topic="quarantine.compacted"
    )
    runs = Runs(spark, names, tmp_path)
    topic, began = runs.kafka.events_topic, int(time.time() * 1000) - 60_000
    asyncio.run(ensure(runs.kafka, TopicSettings(events_partitions=1, segments_partitions=0)))
    compacted = {"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.01"}
    change = ConfigResource(ConfigResourceType.TOPIC, topic, configs=compacted)
    runs.admin(lambda admin: admin.alter_configs([change]))
    asyncio.run(_keyed(runs, began, range(100)))
    runs.run()
    asyncio.run(_keyed(runs, began, range(100, 200)))

    async def cleaned() -> bool:
        return (await _offsets(runs))[0] > 160

    asyncio.run(until(cleaned, "compaction", TIMEOUT))
    asyncio.run(_keyed(runs, began, range(200, 210)))
    runs.lose_checkpoint()
    runs.run(batch_records=50)  # the next batch holds offsets, and no record
    (row,) = runs.query('select list("offset") as landed from events where "offset" >= 100')
    left = {offset for offset in asyncio.run(_offsets(runs)) if offset >= 100}
    assert set(range(200, 210)) <= left <= set(row["landed"])
    assert len(row["landed"]) <= 50
    assert losses(runs) == []
    assert runs.proven()
    (row,) = runs.query('select max("to") as ended, min(records) as least from batches')
    assert row == {"ended": 210, "least": 0}


async def _keyed(runs: Runs, began: int, numbers: range) -> None:
    """Sends events with ten keys, 10 ms apart in their timestamps, which end the segments."""
    producer = AIOKafkaProducer(bootstrap_servers=runs.kafka.bootstrap_servers, acks="all", linger_ms=0)
    async with producer:
        for number in numbers:
            values = (
                b"1.0", b"d.%032x" % number, b"/forward/host", b"headrace.forward.event", b"app", b"2026-05-06T00:00:00Z",
                b"application/json", b"{}",
            )  # fmt: skip
            headers = list(zip(HEADERS, values, strict=True))
            await producer.send_and_wait(
                runs.kafka.events_topic, b"{}", b"%d" % (number % 10), headers=headers, timestamp_ms=began + number * 10
            )


async def _offsets(runs: Runs) -> list[int]:
    """The offsets that a reader of the events topic still finds."""
    consumer = AIOKafkaConsumer(bootstrap_servers=runs.kafka.bootstrap_servers)
    await consumer.start()
    try:
        place = TopicPartition(runs.kafka.events_topic, 0)
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        end = (await consumer.end_offsets([place]))[place]
        found: list[int] = []
        while not found or found[-1] < end - 1:
            found.append((await consumer.getone()).offset)
        return found
    finally:
        await consumer.stop()


async def _transactions(runs: Runs) -> None:
    """Sends an aborted transaction."""
    producer = AIOKafkaProducer(bootstrap_servers=runs.kafka.bootstrap_servers, transactional_id="t", acks="all")
    async with producer:
        await producer.begin_transaction()
        for index in range(20):
            await producer.send_and_wait(runs.kafka.events_topic, b"%d" % index, partition=0)
        await producer.abort_transaction()


def _dies(*_: Any, **__: Any) -> None:
    raise RuntimeError("killed here")
