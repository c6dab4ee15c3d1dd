"""Offsets that Kafka deleted before they were landed: the job stops and names them, and continues once that is accepted.

`test_model.py` and `test_job.py` have what is decided; here a broker deletes, and Spark's source notices.
"""

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

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


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
    asyncio.run(abort(runs))
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
    asyncio.run(abort(runs))
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


async def abort(runs: Runs) -> None:
    """Sends an aborted transaction."""
    async with AIOKafkaProducer(
        bootstrap_servers=runs.kafka.bootstrap_servers, transactional_id="t", acks="all"
    ) as producer:
        await producer.begin_transaction()
        for index in range(20):
            await producer.send_and_wait(runs.kafka.events_topic, b"%d" % index, partition=0)
        await producer.abort_transaction()
