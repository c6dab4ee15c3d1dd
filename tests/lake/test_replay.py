"""Replay: missing records come back, existing rows are not touched, and the proof holds."""

from __future__ import annotations

import pytest
from headrace_lake.tables.layout import DUPLICATES, EVENTS, QUARANTINE

from tests.lake.runs import Runs

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_rows_that_were_deleted_come_back_and_nothing_else(runs: Runs) -> None:
    runs.send(1_600)
    runs.run(batch_records=500)
    said = runs.query('select topic, max("to"), sum(records) as n from batches group by all order by all')
    runs.sql(EVENTS, "delete from TABLE where `offset` % 7 = 3 and partition <> 1")
    runs.sql(QUARANTINE, "delete from TABLE where partition = 2")
    (row,) = runs.query("select count(*)::int as n from events")
    lost = len(runs.sent.events) - row["n"]
    assert lost > 100
    assert not runs.proven()

    runs.replay(batch_records=600)
    landed = runs.said("landed")
    assert (len(landed) > 2, sum(line["events"] for line in landed)) == (True, lost)
    assert runs.query('select topic, max("to"), sum(records) as n from batches group by all order by all') == said
    runs.check()

    runs.replay()
    assert [line["events"] for line in runs.said("landed")] == [0]
    runs.check()

    runs.send(400, mark="b")  # the job goes on by itself
    runs.run()
    runs.check()


def test_resends_stay_out_while_a_copy_is_there(runs: Runs) -> None:
    runs.send(400)
    kept = dict(runs.sent.events)
    runs.send(400)  # all of it again
    again = runs.sent.events.keys() - kept.keys()
    for place in again:
        del runs.sent.events[place]
    runs.sent.resent = len(again)
    runs.run(batch_records=300)
    runs.check()
    runs.sql(EVENTS, "delete from TABLE where partition > 1")
    runs.replay(batch_records=350)
    runs.check()
    assert runs.query("select count(*) as n from duplicates") == [{"n": len(again)}]

    runs.sql(EVENTS, "delete from TABLE where partition = 0 and `offset` < 5")
    runs.send(400)  # of those that were deleted the copies land, by a job that never saw the others
    runs.run()
    runs.replay()
    assert runs.query("select count(*) - count(distinct event_id) as n from events") == [{"n": 0}]
    runs.sql(DUPLICATES, "delete from TABLE where partition = 1")
    assert not runs.proven()
    runs.replay()
    assert runs.proven()


def test_it_goes_back_as_far_as_kafka_holds_all(runs: Runs) -> None:
    """Rows of lines before stay away, and the proof says so."""
    for mark in ("a", "b"):
        runs.send(400, mark=mark)
        runs.run()
    runs.delete_records({0: 50})
    runs.sql(EVENTS, "delete from TABLE where partition = 0")
    assert runs.replay() is not None
    (refused,) = runs.said("no replay before it")
    assert refused["offsets"] == f"{runs.kafka.events_topic}/0 from 0 on: Kafka no longer holds it"
    landed = {row["body"] for row in runs.query("select body from events where partition = 0")}
    assert landed == {body for (_, number, _), (_, body) in runs.sent.events.items() if number == 0 and '"b"' in body}
    assert not runs.proven()
