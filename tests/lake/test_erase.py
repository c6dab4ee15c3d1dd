"""Erasure: what was asked for is gone, the rest stays, nothing comes back, and the proof holds and names it."""

from __future__ import annotations

from pathlib import Path

import pytest
from headrace_lake.__main__ import parser
from headrace_lake.commands import erase
from headrace_lake.commands.erase import ErasureRequest
from headrace_lake.spark.halt import HaltError
from headrace_lake.tables.erasures import ERASURES
from headrace_lake.tables.layout import EVENTS
from headrace_lake.upkeep.merging import choice

from tests.lake.runs import Running, Runs
from tests.lake.stream import check_rows


def forget(runs: Runs, partition: int, *indexes: int) -> None:
    """The test expects nothing of `partition` of the events topic any more; with `indexes`, only not these places."""
    for kind in (runs.sent.events, runs.sent.quarantined):
        for place in list(kind):
            if place[:2] == (runs.kafka.events_topic, partition) and (not indexes or place[2] in indexes):
                del kind[place]


def behind(runs: Runs) -> bool:
    """Whether `batches` does not cover yet all that was sent."""
    ends = 'select topic, "partition", max("to") from batches group by all'
    covered = {(topic, number): end for topic, number, end in (row.values() for row in runs.query(ends))}
    return any(covered.get(place[:2], 0) <= place[2] for place in (*runs.sent.events, *runs.sent.quarantined))


@pytest.mark.kafka
@pytest.mark.spark
def test_what_was_asked_for_goes_and_never_comes_back(runs: Runs, tmp_path: Path) -> None:
    """Neither by a replay nor, though the job's memory is too short for it, if it is sent again."""
    with pytest.raises(HaltError, match="there are no tables in"):
        Runs(runs.spark, runs.kafka, tmp_path / "none").erase("true")
    runs.send(800, resend_every=20)
    runs.run(batch_records=500)
    runs.check()
    said = runs.query("select * from batches order by all")
    of_host = "source = '/forward/host-1' and get_json_object(body, '$.mark') = 'a'"
    asked = f"{of_host} or source = '/forward/host-2' and get_json_object(body, '$.index') in (5, 7)"
    dry = runs.erase(asked, apply=False)
    wanted = sum(place[1] == 1 for place in runs.sent.events) + 1
    assert dry.events == wanted > 100
    assert not (runs.lake / ERASURES).exists(), "a dry run changes nothing"
    runs.check()

    done = runs.erase(asked)
    forget(runs, 1)
    forget(runs, 2, 5, 7)
    assert (done.events, done.quarantined, done.deleted) == (wanted, dry.quarantined, wanted + done.quarantined)
    check_rows(runs.lake, runs.sent)
    assert runs.query("select * from batches order by all") == said, "what landed has landed"
    listed = runs.query("select * from erasures")
    assert {row["reason"] for row in listed} == {"somebody asked"}
    assert sum(row["rows"] for row in listed if row["table"] == EVENTS) == wanted
    assert not any("host-1" in str(row) for row in listed)
    columns = ("topic", "partition", "landed_at")
    places = [{tuple(row[name] for name in columns) for row in rows} for rows in (listed, said)]
    assert places[0] <= places[1], "of batches that landed"
    runs.replay()
    check_rows(runs.lake, runs.sent)

    left_out = len(runs.query("select * from duplicates"))
    runs.send(800)  # all of it, and what were resends, in other places
    forget(runs, 1, *(200 + index for index in range(200) if index % 20 != 19))
    forget(runs, 2, 205, 207)
    runs.run(horizon=0.001)  # too short for the job's own memory: all others land again
    check_rows(runs.lake, runs.sent)
    assert len(runs.query("select * from duplicates")) == left_out + 190 + 2


@pytest.mark.kafka
@pytest.mark.spark
def test_beside_a_running_job(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which merges files meanwhile."""
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
    runs.run(maintenance_share=0.9)
    check_rows(runs.lake, runs.sent)
    merged = runs.metrics.registry.get_sample_value
    assert (merged("headrace_lake_maintenance_runs_total", {"task": "compact"}) or 0) > 0
    assert not merged("headrace_lake_maintenance_failures_total", {"task": "compact"})


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
    given = parser().parse_args(["erase", *arguments.split()])
    if isinstance(found, ErasureRequest):
        assert erase.request_of(given) == found
        return
    with pytest.raises(SystemExit) as ended:
        erase.request_of(given)
    assert ended.value.code == 2
    assert found in capsys.readouterr().err
