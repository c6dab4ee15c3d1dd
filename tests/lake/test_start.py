"""Where a run begins: behind what landed, behind what Kafka deleted before, further back for a replay; and what it waits for.

The job lands from a real broker, in this process to save the start of a JVM. `test_model.py` has what is decided.
"""

from __future__ import annotations

import asyncio
import shutil
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.structs import TopicPartition
from headrace_common.operations.settings import KafkaSettings
from headrace_lake.kafka import source
from headrace_lake.kafka.source import Brokers
from headrace_lake.landing.landing import Landing
from headrace_lake.spark.halt import GapError
from headrace_lake.tables.fence import claim_of
from headrace_lake.tables.layout import BATCHES, DUPLICATES, EVENTS, GAPS, QUARANTINE
from headrace_lake.upkeep import group_reporter
from headrace_lake.upkeep.group_reporter import GroupReporter

from tests.lake.lander import version
from tests.lake.runs import Running, Runs

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def value(runs: Runs, name: str, **labels: str) -> float | None:
    return runs.metrics.registry.get_sample_value(f"headrace_lake_{name}", labels)


def test_without_a_checkpoint_it_goes_on_behind_its_batches(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_ANSWER_TIME", 120)  # a broker's first commit makes a topic
    shutil.rmtree(runs.lake)
    group = f"group-of-{runs.kafka.events_topic}"
    runs.send(800)
    runs.run(batch_records=300, group=group)
    ends: dict[TopicPartition, int] = {}
    for topic, partition, offset in sorted((*runs.sent.events, *runs.sent.quarantined)):
        ends[TopicPartition(topic, partition)] = offset + 1
    committed = runs.admin(lambda client: client.list_consumer_group_offsets(group))
    assert {at: each.offset for at, each in committed.items()} == ends
    said = {name: value(runs, name) for name in ("batches_total", "freshness_seconds_count", "group_failures_total")}
    assert said == {
        "batches_total": len(runs.said("landed")), "freshness_seconds_count": len(runs.sent.events),
        "group_failures_total": 0,
    }  # fmt: skip

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


def test_the_lag_and_the_margin_are_those_of_kafka(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_reporter, "_EVERY", 0.0)
    runs.send(400)
    topic = runs.kafka.events_topic
    brokers = Brokers(runs.spark, runs.kafka)
    reporter = GroupReporter(brokers, group="", metrics=runs.metrics, log=runs.log())
    reporter.landed({**dict.fromkeys(((topic, number) for number in range(3)), 10), (topic, 3): 100})

    def said(name: str) -> list[float | None]:
        reporter.run_due()
        return [value(runs, name, topic=topic, partition=str(number)) for number in range(4)]

    assert said("lag_offsets") == [90, 90, 90, 0]
    assert said("retention_margin_offsets") == [10, 10, 10, 100]
    runs.delete_records({0: 50})  # retention has overtaken partition 0
    assert said("retention_margin_offsets") == [0, 10, 10, 100]
    runs.send_unread(3, aborts=False)  # the job waits at it
    assert said("lag_offsets") == [90, 90, 90, 1]
    brokers.close()


def test_it_waits_for_topics_and_claims_partitions_that_are_added(runs: Runs, topics: KafkaSettings) -> None:
    missing = topics.model_copy(update={"quarantine_topic": f"{topics.quarantine_topic}.late"})
    job = Running(runs, kafka=missing)
    job.next("waiting")
    runs.admin(lambda admin: admin.create_topics([NewTopic(missing.quarantine_topic, 3, 1)]))
    runs.kafka = missing
    runs.send(400)
    job.next("landed")
    runs.admin(lambda admin: admin.create_partitions({runs.kafka.events_topic: NewPartitions(5)}))
    runs.send_unread(4, aborts=True)
    job.next("claims the tables again")
    job.stop()
    assert [line["reason"] for line in runs.said("waiting")] == [f"there is no topic {missing.quarantine_topic}"]
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


MOMENT = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"


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
    with pytest.raises(
        GapError, match=rf"{topic}/0 \(id .*, recreated\): from \d+ on; .* last at {MOMENT}\. .* --accept-loss"
    ):
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
    runs.run()
    covered = 'select topic, max("to"), sum(records) as n from batches group by all order by all'
    said = runs.query(covered)
    runs.sql(EVENTS, "delete from TABLE where `offset` % 7 = 3 and partition <> 1")
    runs.sql(QUARANTINE, "delete from TABLE where partition = 2")
    runs.sql(DUPLICATES, "delete from TABLE where partition = 1")
    lost = len(runs.sent.events) - runs.query("select count(*)::int as n from events")[0]["n"]
    assert lost > 100
    assert not runs.proven()

    runs.replay(batch_records=1_000)
    landed = runs.said("landed")
    assert (len(landed), sum(line["events"] for line in landed)) == (2, lost)
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
