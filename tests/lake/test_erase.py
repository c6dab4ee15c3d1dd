"""Erasure: what was asked for is gone, the rest stays, nothing comes back, and the proof holds and names it."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from headrace_lake.commands import erase
from headrace_lake.commands.erase import ErasureRequest
from headrace_lake.spark.halt import HaltError
from headrace_lake.tables.erasures import ERASURES
from headrace_lake.tables.layout import EVENTS
from headrace_lake.upkeep.merging import choice

from tests.lake.runs import Running, Runs

INDEX = "source = '/forward/host-2' and get_json_object(body, '$.index') = {}"


def forget(runs: Runs, partition: int, index: int | None = None) -> None:
    """The test expects nothing of `partition` of the events topic any more; with `index`, only not this event."""
    for place, (event_id, _) in list(runs.sent.events.items()):
        if place[1] == partition and (index is None or event_id.endswith(f"{index:08x}")):
            del runs.sent.events[place]
    if index is None:
        for place in list(runs.sent.quarantined):
            if place[:2] == (runs.kafka.events_topic, partition):
                del runs.sent.quarantined[place]


def landed(runs: Runs) -> set[tuple[str, int, int]]:
    found = runs.query('select topic, "partition", "offset" from events')
    return {(row["topic"], row["partition"], row["offset"]) for row in found}


def behind(runs: Runs) -> bool:
    """Whether `batches` does not cover yet all that was sent."""
    ends = 'select topic, "partition", max("to") from batches group by all'
    covered = {(topic, number): end for topic, number, end in (row.values() for row in runs.query(ends))}
    return any(covered.get(place[:2], 0) <= place[2] for place in (*runs.sent.events, *runs.sent.quarantined))


def gone(runs: Runs) -> None:
    """Exactly what is expected is there, and the proof holds."""
    assert landed(runs) == set(runs.sent.events)
    kept = runs.query('select topic, "partition", "offset" from quarantine')
    assert {tuple(row.values()) for row in kept} == set(runs.sent.quarantined)
    proof = runs.proof()
    assert all(row["ok"] for row in proof), proof


class TestOnKafka:
    pytestmark = [pytest.mark.kafka, pytest.mark.spark]  # noqa: RUF012

    def test_what_was_asked_for_goes_and_never_comes_back(self, runs: Runs) -> None:
        runs.send(800, resend_every=20)
        runs.run(batch_records=500)
        runs.check()
        said = runs.query("select * from batches order by all")
        dry = runs.erase("source = '/forward/host-1'", apply=False)
        wanted = sum(place[1] == 1 for place in runs.sent.events)
        assert dry.events == wanted > 100
        assert not (runs.lake / ERASURES).exists(), "a dry run changes nothing"
        runs.check()

        done = runs.erase("source = '/forward/host-1' and get_json_object(body, '$.mark') = 'a'")
        forget(runs, 1)
        assert (done.events, done.deleted) == (wanted, wanted + done.quarantined)
        gone(runs)
        assert runs.query("select * from batches order by all") == said, "what landed has landed"
        (named,) = [row for row in runs.proof() if row["check"] == "what was erased on request"]
        assert f"events {wanted}" in named["detail"]
        assert "somebody asked" in named["detail"]
        listed = runs.query("select * from erasures")
        assert sum(row["rows"] for row in listed if row["table"] == EVENTS) == wanted
        assert not any("host-1" in str(row) for row in listed)
        columns = ("topic", "partition", "landed_at")
        places = [{tuple(row[name] for name in columns) for row in rows} for rows in (listed, said)]
        assert places[0] <= places[1], "of batches that landed"
        assert runs.erase("source = '/forward/host-1'").events == 0

        sums = 'select topic, "partition", max("to"), sum(records) as n from batches group by all order by all'
        covered = runs.query(sums)
        runs.replay()
        gone(runs)
        assert runs.query(sums) == covered

    def test_an_erased_event_that_is_sent_again_does_not_land(self, runs: Runs) -> None:
        runs.send(400)
        runs.run()
        runs.erase(INDEX.format(5))
        forget(runs, 2, 5)
        assert runs.erase(INDEX.format(7)).quarantined == 1
        del runs.sent.quarantined[runs.kafka.events_topic, 2, 7]
        gone(runs)
        again = dict(runs.sent.events)
        before = dict(runs.sent.quarantined)
        runs.send(400)  # all of it, and the erased one, in other places
        runs.sent.events, sent = again, runs.sent.events
        resent = len(sent) - len(again)
        runs.run(horizon=0.001)  # too short for the job's own memory: all others land again
        runs.sent.events = {
            place: what for place, what in sent.items() if not (place[1] == 2 and what[0].endswith(f"{5:08x}"))
        }
        del runs.sent.quarantined[runs.kafka.events_topic, 2, 107]
        assert len(runs.sent.quarantined) > len(before)
        gone(runs)
        assert runs.query("select count(*) as n from duplicates") == [{"n": 2}], "an event, and what was in quarantine"
        assert resent

    def test_beside_a_running_job(self, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(choice, "MOST_SMALL", 2)
        runs.send(800)
        job = Running(runs, batch_records=200, maintenance_share=0.9)
        job.next("landed")
        beside = Runs(runs.spark.newSession(), runs.kafka, runs.lake.parent)
        beside.erase("source = '/forward/host-3'")
        runs.send(400, mark="b")
        job.wait(lambda: behind(runs))  # also where everything is erased: what lands later is not
        beside.erase("source = '/forward/host-3'")
        forget(runs, 3)
        job.stop()
        runs.run()
        gone(runs)

    def test_there_must_be_tables(self, runs: Runs, tmp_path: Path) -> None:
        runs.lake = tmp_path / "none"
        with pytest.raises(HaltError, match="there are no tables in"):
            runs.erase("event_id = 'x'")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("--where x --reason r --by dpo --apply", ErasureRequest("x", "r", "dpo")),
        ("--finish --by dpo", ErasureRequest("", "finishes earlier erasures", "dpo")),
        ("", "name what to erase: --where"),
        ("--where true --apply", "--apply needs --reason"),
        ("--finish --where true", "--finish takes no condition"),
    ],
)
def test_the_command_line(capsys: pytest.CaptureFixture[str], arguments: str, found: ErasureRequest | str) -> None:
    """`found`: the request, or why there is none."""
    parser = argparse.ArgumentParser()
    erase.add(parser.add_subparsers())
    given = parser.parse_args(["erase", *arguments.split()])
    if isinstance(found, ErasureRequest):
        assert erase.request_of(given) == found
        return
    with pytest.raises(SystemExit) as ended:
        erase.request_of(given)
    assert ended.value.code == 2
    assert found in capsys.readouterr().err
