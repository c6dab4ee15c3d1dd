"""Where a run begins: behind what landed, behind what Kafka deleted before, further back for a replay; and what it waits for.

The job lands from a real broker, in this process to save the start of a JVM. `test_model.py` has what is decided.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from headrace_common.operations.settings import KafkaSettings
from headrace_lake.configuration.settings import LakeSettings
from headrace_lake.kafka import source
from headrace_lake.landing.landing import Landing
from headrace_lake.spark.halt import GapError
from headrace_lake.tables.fence import claim_of
from headrace_lake.tables.layout import BATCHES, DUPLICATES, EVENTS, GAPS, QUARANTINE

from tests.lake.lander import version
from tests.lake.runs import Running, Runs

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_it_goes_on_behind_batches_without_a_checkpoint(runs: Runs) -> None:
    runs.send(800)
    runs.run(batch_records=300)
    more = {runs.kafka.quarantine_topic: NewPartitions(5)}
    runs.admin(lambda admin: admin.create_partitions(more))
    shutil.rmtree(runs.checkpoint)
    runs.send(400, mark="b")
    runs.run()
    runs.check()
    runs.metrics.last_landed.set(0)
    runs.run()  # nothing new
    runs.check()
    assert runs.metrics.last_landed._value.get() > 1.7e9
    assert [row["epoch"] for row in runs.query("select distinct epoch from batches order by epoch")] == [1, 2]
    assert len([path for path in runs.checkpoint.iterdir() if path.is_dir()]) == 1, "older ones are deleted"


def test_it_waits_for_topics_with_one_line_then_for_enough_records_and_stops_when_asked(
    runs: Runs, topics: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch costs the same whatever is in it. In two seconds the job looks several times, and lands what does not wait."""
    monkeypatch.setattr(LakeSettings, "least_records", 1000)
    missing = topics.model_copy(update={"quarantine_topic": f"{topics.quarantine_topic}.late"})
    job = Running(runs, kafka=missing, delay=3600)
    job.next("waiting")
    runs.admin(lambda admin: admin.create_topics([NewTopic(missing.quarantine_topic, 3, 1)]))
    job.next("landing")
    assert [line["reason"] for line in runs.said("waiting")] == [f"there is no topic {missing.quarantine_topic}"]
    runs.kafka = missing

    def batches() -> list[int]:
        return [row["records"] for row in runs.query("select records from batches where records > 0 order by batch")]

    runs.send(400, "first")
    job.wait(lambda: not batches())  # the first batch waits for nothing
    time.sleep(2)
    before = len(batches())
    runs.send(400, "few")
    time.sleep(2)
    assert len(batches()) == before
    runs.send(2000, "more")
    job.wait(lambda: sum(batches()) <= 1000)
    job.stop()
    runs.run()  # lands what is left, and ends
    runs.check()
    assert source.delay_options(3.5, 7) == {"minOffsetsPerTrigger": "7", "maxTriggerDelay": "3500ms"}


def losses(runs: Runs) -> list[tuple[Any, ...]]:
    columns = 'reason, topic, "partition", "from", "to", "rows"'
    return [tuple(row.values()) for row in runs.query(f"select {columns} from gaps order by all")]


def lose(runs: Runs, partition: int, offsets: range) -> None:
    """Makes Kafka delete the partition's records up to the end of `offsets`; the test expects no rows of these."""
    runs.delete_records({partition: offsets.stop})
    for offset in offsets:
        for kind in (runs.sent.events, runs.sent.quarantined):
            kind.pop((runs.kafka.events_topic, partition, offset), None)


def test_what_kafka_deleted_stops_the_job_until_it_is_accepted(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """No loss: what was deleted before the first start; what was landed; aborted records. Last, the topic is recreated."""
    topic = runs.kafka.events_topic
    runs.send(400)
    runs.send_unread(0, aborts=True)
    lose(runs, 1, range(30))
    lose(runs, 2, range(100))  # of all that the partition has
    runs.run(accept_loss=True)  # there is nothing to accept
    runs.check()
    assert losses(runs) == []

    runs.send(800, mark="b")
    contiguous = Landing._check_contiguous

    def deletes_first(self: Landing, ranges: Any) -> None:
        lose(runs, 2, range(100, 150))
        contiguous(self, ranges)

    lost = rf"50 offsets.*{topic}/2: 100 to 149\. .* python -m headrace_lake --accept-loss"
    with monkeypatch.context() as patched:
        patched.setattr(Landing, "_check_contiguous", deletes_first)  # of a batch that is planned
        with pytest.raises(GapError, match=lost):
            runs.run(once=False)
    before = version(runs.lake, BATCHES)
    with pytest.raises(GapError, match=lost):
        runs.run()
    assert version(runs.lake, BATCHES) == before
    assert losses(runs) == []
    runs.delete_records({3: 60})  # it was landed
    runs.run(accept_loss=True)
    retention = [("retention", topic, 2, 100, 150, 0)]
    assert losses(runs) == retention
    assert version(runs.lake, GAPS) == claim_of(3), "it came with the claim"
    assert [line["lost"] for line in runs.said("accepts a loss")] == [f"{topic}/2: 100 to 149"]
    runs.send_unread(0, aborts=True)
    runs.run()  # its batch holds offsets, and no record
    runs.check()

    runs.admin(lambda admin: recreate(admin, topic))
    landed = len(runs.sent.events)
    runs.sent.events.clear()
    runs.send(1_600, mark="c")  # longer than the old one was: no offset tells them apart
    with pytest.raises(GapError, match=rf"{topic}/0 \(id .*, recreated\): from \d+ on; .* --accept-loss"):
        runs.run()
    runs.run(accept_loss=True)
    assert runs.query("select count(*) as n, count(distinct topic_id) as ids from events") == [
        {"n": landed + len(runs.sent.events), "ids": 2}
    ]
    assert [loss[:3] for loss in losses(runs)] == [
        *(("recreated", topic, number) for number in range(4)),
        retention[0][:3],
    ]
    assert runs.proven()


async def recreate(admin: AIOKafkaAdminClient, topic: str) -> None:
    await admin.delete_topics([topic])
    while topic in await admin.list_topics():  # noqa: ASYNC110  (the broker has no event for it)
        await asyncio.sleep(0.05)
    await admin.create_topics([NewTopic(topic, 4, 1)])


def test_rows_that_were_deleted_come_back_and_nothing_else(runs: Runs) -> None:
    """Resends stay out while a copy is there."""
    runs.send(1_600, resend_every=20)
    runs.run(batch_records=500)
    covered = 'select topic, max("to"), sum(records) as n from batches group by all order by all'
    said = runs.query(covered)
    runs.sql(EVENTS, "delete from TABLE where `offset` % 7 = 3 and partition <> 1")
    runs.sql(QUARANTINE, "delete from TABLE where partition = 2")
    runs.sql(DUPLICATES, "delete from TABLE where partition = 1")
    lost = len(runs.sent.events) - runs.query("select count(*)::int as n from events")[0]["n"]
    assert lost > 100
    assert not runs.proven()

    runs.replay(batch_records=600)
    landed = runs.said("landed")
    assert (len(landed) > 2, sum(line["events"] for line in landed)) == (True, lost)
    assert runs.query(covered) == said
    runs.check()

    runs.sql(EVENTS, "delete from TABLE where partition = 0 and `offset` < 5")
    runs.send(
        1_600, resend_every=20
    )  # all of it again: of those that were deleted the copies land, by a job that never saw the others
    runs.run()
    assert [line["events"] for line in runs.said("landed")] == [5]
    runs.replay()
    assert [line["events"] for line in runs.said("landed")] == [0]
    assert runs.query("select count(*) - count(distinct event_id) as n from events") == [{"n": 0}]
    assert runs.proven()
