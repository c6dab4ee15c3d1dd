"""Replay: missing records come back, existing rows are not touched, and the proof holds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from deltalake import DeltaTable
from headrace_lake.commands.replay_plan import ReplayResult
from headrace_lake.tables.fence import claim_of
from headrace_lake.tables.layout import BATCHES, DUPLICATES, EVENTS, QUARANTINE, SCHEMAS

from tests.lake.lander import version
from tests.lake.runs import Runs


def batches(runs: Runs) -> list[dict[str, Any]]:
    return runs.query("select * from batches order by all")


class TestOnKafka:
    pytestmark = [pytest.mark.kafka, pytest.mark.spark]  # noqa: RUF012

    def test_rows_that_were_deleted_come_back_and_nothing_else(self, runs: Runs) -> None:
        runs.send(1_600)
        runs.run(batch_records=500)
        said = batches(runs)
        runs.sql(EVENTS, "delete from TABLE where `offset` % 7 = 3 and partition <> 1")
        runs.sql(QUARANTINE, "delete from TABLE where partition = 2")
        (row,) = runs.query("select count(*)::int as n from events")
        lost = len(runs.sent.events) - row["n"]
        assert lost > 100
        assert not runs.proven()

        dry = runs.replay(dry_run=True)
        assert (dry.events, dry.left_out) == (lost, 0)
        assert version(runs.lake, BATCHES) < claim_of(2), "a dry run claims nothing"
        assert runs.replay(batch_records=600) == dry
        assert len(runs.said("replayed")) > 2
        assert (dry.events, batches(runs)) == (lost, said)
        runs.check()

        writes = {name: DeltaTable(str(runs.lake / name)).version() for name in SCHEMAS}
        assert runs.replay() == ReplayResult(offsets=dry.offsets)
        after = {name: DeltaTable(str(runs.lake / name)).version() for name in SCHEMAS}
        assert after == {name: number + 1 for name, number in writes.items()}, "a claim, and nothing else"
        runs.check()

        runs.send(400, mark="b")  # the job goes on by itself: its checkpoint is not in the way
        runs.run()
        runs.check()

    @pytest.mark.full
    def test_only_what_landed_since(self, runs: Runs) -> None:
        runs.send(400)
        runs.run()
        between = datetime.now(UTC)
        runs.send(400, mark="b")
        runs.run()
        runs.sql(EVENTS, "delete from TABLE")
        assert runs.replay(datetime.now(UTC) + timedelta(hours=1)) == ReplayResult()
        assert 0 < runs.replay(between).events < len(runs.sent.events)
        landed = {row["body"] for row in runs.query("select body from events")}
        assert landed == {body for _, body in runs.sent.events.values() if '"b"' in body}
        runs.replay()
        runs.check()

    def test_resends_stay_out_while_a_copy_is_there(self, runs: Runs) -> None:
        runs.send(400)
        kept = dict(runs.sent.events)
        runs.send(400)  # all of it again
        again = runs.sent.events.keys() - kept.keys()
        for place in again:
            del runs.sent.events[place]
        runs.sent.resent = len(again)
        runs.run(batch_records=300)
        runs.check()
        said = batches(runs)
        assert runs.query("select count(*) as n from duplicates") == [{"n": len(again)}]
        runs.sql(EVENTS, "delete from TABLE where partition > 1")
        done = runs.replay(batch_records=350)
        assert done.events == sum(place[1] > 1 for place in kept)
        runs.check()
        assert batches(runs) == said

        runs.sql(EVENTS, "delete from TABLE where partition = 0 and `offset` < 5")
        runs.send(400)  # of those that were deleted the copies land, by a job that never saw the others
        runs.run()
        assert runs.replay().events == 0
        assert runs.query("select count(*) - count(distinct event_id) as n from events") == [{"n": 0}]
        runs.sql(DUPLICATES, "delete from TABLE where partition = 1")
        assert not runs.proven()
        assert runs.replay().left_out > 0
        assert runs.proven()

    def test_what_kafka_no_longer_holds_is_named_and_left(self, runs: Runs) -> None:
        topic = runs.kafka.events_topic
        runs.send(800)
        runs.run()
        runs.delete_records({0: 150, 1: 200, 3: 20})
        runs.sql(EVENTS, "delete from TABLE where partition <> 2 and `offset` between 100 and 180")
        done = runs.replay()
        assert sorted(line["offsets"] for line in runs.said("cannot replay")) == [
            f"{topic}/0: 0 to 149 (Kafka no longer holds it)",
            f"{topic}/1: 0 to 199 (Kafka no longer holds it)",
            f"{topic}/3: 0 to 19 (Kafka no longer holds it)",
        ]
        missing = runs.sent.events.keys() - {
            (row["topic"], row["partition"], row["offset"]) for row in runs.query("select * from events")
        }
        assert missing == {
            place for place in runs.sent.events
            if (place[1] == 0 and 100 <= place[2] < 150) or (place[1] == 1 and 100 <= place[2] <= 180)
        }  # fmt: skip
        assert done.left_out == 0
        assert not runs.proven(), "and the proof says so"
