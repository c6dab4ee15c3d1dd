"""Replay: missing records come back, existing rows are not touched, and the proof holds."""

from __future__ import annotations

import argparse
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from deltalake import DeltaTable
from headrace_lake.commands import replay_command
from headrace_lake.commands.replay import ReplayResult
from headrace_lake.commands.replay_plan import BatchRange, ReplayRequest, Unreplayable, merged, steps
from headrace_lake.spark.halt import HaltError, SupersededError
from headrace_lake.tables.fence import claim_of
from headrace_lake.tables.layout import BATCHES, EVENTS, QUARANTINE, SCHEMAS

from tests.lake.lander import version
from tests.lake.runs import Running, Runs

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def replay(runs: Runs, since: datetime | None = LONG_AGO, **asked: Any) -> ReplayResult:
    return runs.replay(ReplayRequest(None if "starts" in asked else since, **asked))


def batches(runs: Runs) -> list[dict[str, Any]]:
    return runs.query("select * from batches order by all")


def without_digest(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**line, "digest": None} for line in lines]


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
        assert (dry.events, dry.corrected) == (lost, 0)
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
    def test_only_what_is_asked_for(self, runs: Runs) -> None:
        topic = runs.kafka.events_topic
        runs.send(800)
        runs.run(batch_records=200)
        runs.sql(EVENTS, "delete from TABLE")
        ranges = runs.query(f'select "from", "to" from batches where topic = \'{topic}\' and "partition" = 1')
        covers = next(row for row in ranges if row["from"] <= 50 < row["to"])
        done = replay(runs, starts={(topic, 1): 50}, ends={(topic, 1): 51})
        assert done.offsets == covers["to"] - covers["from"], "whole batches"
        landed = {(row["partition"], row["offset"]) for row in runs.query("select * from events")}
        assert landed == {
            (1, offset) for _, n, offset in runs.sent.events if n == 1 and covers["from"] <= offset < covers["to"]
        }
        with pytest.raises(HaltError, match="there is no topic other to replay"):
            replay(runs, starts={("other", 0): 0})
        with pytest.raises(HaltError, match="has no partition 4: it has 4"):
            replay(runs, starts={(topic, 4): 0})
        now = datetime.now(UTC)
        assert replay(runs, now + timedelta(hours=1)) == ReplayResult()
        assert replay(runs, LONG_AGO, until=LONG_AGO + timedelta(1)) == ReplayResult()
        replay(runs, now - timedelta(hours=1), until=now + timedelta(hours=1))
        runs.check()

    def test_a_running_job_stops_and_starts_again_by_itself(self, runs: Runs) -> None:
        runs.send(800)
        job = Running(runs)
        job.next("landed")
        runs.sql(EVENTS, "delete from TABLE where partition = 0")
        runs.replay()
        runs.send(400, mark="b")
        job.join()
        # The replay claims 2, and one more whenever the job writes to a table between two of its claims.
        assert isinstance(job.failed[0], SupersededError)
        assert re.search(r"another job has taken over: it claimed epoch \d", str(job.failed[0]))
        runs.run()
        runs.check()

    @pytest.mark.full
    def test_what_a_policy_left_out_lands_when_the_policy_has_changed(self, runs: Runs) -> None:
        runs.send(1_200)
        runs.run(quarantine={"default": "skip"})
        assert runs.query("select count(*) as n from quarantine") == [{"n": 0}]
        with pytest.raises(HaltError, match="suspends the job for missing_header"):
            runs.replay(quarantine={"missing_header": "suspend", "default": "skip"})
        done = runs.replay()
        assert (done.events, done.quarantined) == (0, len(runs.sent.quarantined))
        assert done.corrected == len(runs.query("select * from batches"))
        runs.check()
        assert runs.query("select sum(skipped)::int as n from batches") == [{"n": 0}]

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
        assert sum(row["duplicates"] for row in said) == len(again)
        runs.sql(EVENTS, "delete from TABLE where partition > 1")
        done = runs.replay(batch_records=350)
        assert done.events == sum(place[1] > 1 for place in kept)
        runs.check()
        assert without_digest(batches(runs)) == without_digest(said), "another copy may have landed, as far as it knows"

        runs.sql(EVENTS, "delete from TABLE where partition = 0 and `offset` < 5")
        runs.send(400)  # of those that were deleted the copies land, by a job that never saw the others
        runs.run()
        assert runs.replay().events == 0
        assert runs.query("select count(*) - count(distinct event_id) as n from events") == [{"n": 0}]
        left_out = runs.query("select sum(duplicates)::int as n from batches")[0]["n"]
        assert runs.replay(horizon=0).events == left_out, "asked to keep them all"
        assert runs.query("select sum(duplicates)::int as n from batches") == [{"n": 0}]
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
        assert done.corrected == 0
        assert not runs.proven(), "and the proof says so"

    def test_columns_may_have_the_names_that_the_job_gave_to_its_own(self, runs: Runs) -> None:
        """A promotion called `first`: the job stopped at a batch, an erasure or a replay, for ever.

        One called `duplicate` got whether the event was one.
        """
        names = [
            "fault", "gap", "looked_up", "duplicate", "erased", "erased_id", "wanted", "sound", "resend", "range_index", "first",
            "beyond", "of_partition", "copy_id", "copy_time", "copy_place",
        ]  # fmt: skip
        shutil.rmtree(runs.lake)
        columns = {"promote": ", ".join(f"body.index as {name} int" for name in names)}
        runs.send(200, resend_every=10)
        runs.run(**columns)
        assert runs.erase("source=/forward/host-1").events > 0
        runs.send(40, mark="b")
        runs.run(**columns)
        runs.sql(EVENTS, "delete from TABLE where partition = 0")
        assert runs.replay().events > 0
        same = " and ".join(f"\"{name}\" = (body->>'$.index')::int" for name in names)
        assert runs.query(f"select bool_and({same}) as same, count(*) > 0 as any from events") == [
            {"same": True, "any": True}
        ]
        assert runs.proven(), runs.proof()


def batch_range(
    start: int, end: int, partition: int = 0, first_held: int | None = None, duplicates: int = 0
) -> BatchRange:
    first_held = start if first_held is None else first_held
    records = end - start
    landed = (records, records - duplicates, duplicates, 0, 0)
    return BatchRange("t", "id", partition, start, end, first_held, *landed, 1, start, LONG_AGO)


def test_steps_take_pieces_in_order_up_to_the_limit() -> None:
    pieces = [batch_range(*place) for place in ((0, 10), (0, 10, 1), (10, 20), (20, 120), (120, 121))]
    assert list(steps(pieces, 20)) == [pieces[:2], pieces[2:3], pieces[3:4], pieces[4:]]
    assert list(steps(pieces, 10_000)) == [pieces]
    assert list(steps([], 10)) == []


def test_a_part_of_a_range_is_replayed_only_if_all_of_the_range_had_landed() -> None:
    """What was left out on purpose looks like what is missing."""
    part = batch_range(0, 10, first_held=5)
    assert part.replayable
    assert not batch_range(0, 10, first_held=5, duplicates=1).replayable
    assert not replace(part, skipped=1).replayable
    assert replace(part, skipped=1, first_held=0).replayable
    assert not batch_range(0, 10, first_held=10).replayable


def test_a_step_has_no_hole_in_a_partition() -> None:
    pieces = [batch_range(*place) for place in ((0, 10), (0, 5, 1), (15, 20), (5, 10, 1), (20, 30))]
    assert list(steps(pieces, 10_000)) == [pieces[:2], pieces[2:]]
    assert merged(pieces[2:]) == {("t", 0): (15, 30), ("t", 1): (5, 10)}
    cut = [batch_range(0, 10, first_held=4), batch_range(10, 20)]
    assert list(steps(cut, 10_000)) == [cut]
    assert merged(cut) == {("t", 0): (4, 20)}


def test_absent_ranges_are_joined() -> None:
    unreplayable = Unreplayable()
    for start, end in ((0, 5), (5, 9), (20, 30)):
        unreplayable.add(batch_range(start, end), start, end, "gone")
    unreplayable.add(batch_range(9, 12), 9, 12, "else")
    assert list(unreplayable) == ["t/0: 9 to 11 (else)", "t/0: 0 to 8 (gone)", "t/0: 20 to 29 (gone)"]


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    replay_command.add(parser.add_subparsers())
    return parser.parse_args(["replay", *arguments])


def test_the_command_line_takes_times_and_offsets() -> None:
    parsed = parse("--from-time", "2026-05-06T12:00:00+02:00", "--to-offsets", '{"t": {"0": 5, "1": 6}}', "--dry-run")
    assert parsed.from_time == datetime(2026, 5, 6, 10, tzinfo=UTC)
    assert (parsed.from_offsets, parsed.to_time, parsed.dry_run) == (None, None, True)
    assert parsed.to_offsets == {("t", 0): 5, ("t", 1): 6}
    assert parse("--from-time", "2026-05-06").from_time == datetime(2026, 5, 6, tzinfo=UTC), (
        "UTC unless it says otherwise"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "one of the arguments --from-time --from-offsets is required"),
        (("--from-time", "yesterday"), "'yesterday' is not a time in ISO 8601"),
        (("--from-offsets", "5"), 'expected JSON like {"topic": {"0": 5}}'),
        (("--from-offsets", '{"t": {"x": 1}}'), 'expected JSON like {"topic": {"0": 5}}'),
        (("--from-time", "2026-05-06", "--from-offsets", "{}"), "not allowed with argument"),
    ],
)
def test_a_wrong_command_line_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    with pytest.raises(SystemExit):
        parse(*arguments)
    assert said in capsys.readouterr().err
