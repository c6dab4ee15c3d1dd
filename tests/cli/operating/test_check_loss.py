"""`headrace check-loss`: each kind of loss is found by its check, alone, and nothing else is."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from headrace_cli.ground import EXIT_DOUBT, EXIT_FAILED
from headrace_cli.operating import loss
from headrace_cli.verbs import check_loss as verb
from headrace_cli.verbs.check_loss import check_loss, landed_and_checked
from headrace_cli.wire.connections import Tally
from headrace_common.operations.settings import KafkaSettings
from headrace_reader.tables import Row

from tests.cli.operating.topics import asked, event_headers, lead_to, put
from tests.lake.test_query import MOMENT, batch, erase, event, gap, make, reject


def named(**values: object) -> dict[str, Any]:
    return {"topic": "t", "number": 1, **values}


FINE = dict.fromkeys((loss.PROOF, loss.GAPS, loss.LOGJAM, loss.QUARANTINE), True)
WHOLE: dict[str, list[Any]] = {"batches": [named(**batch(0, 2, 2))], "events": [event(0), event(1)]}


def heard(number: int) -> dict[str, Any]:
    about = f'{{"device":7,"sequence":{number},"start":1,"restarts":0,"consumer":"us"}}'
    return event(number - 1, protocol="logjam", source="/logjam/d", received_time=MOMENT, attributes=about)


@pytest.mark.parametrize(
    ("rows", "check", "said"),
    [
        ({}, "", ""),
        ({"events": [event(0)]}, loss.PROOF, "each record of a range"),
        ({"gaps": [gap(2, 7)]}, loss.GAPS, "5 offsets were lost before they landed (retention)"),
        (
            {"batches": [named(**batch(0, 7, 2))], "events": [heard(2), heard(7)]},
            loss.LOGJAM,
            "4 numbers of 1 Logjam devices never came",
        ),
    ],
)
def test_a_loss_is_found_by_its_check_alone(tmp_path: Path, rows: dict[str, list[Any]], check: str, said: str) -> None:
    make(tmp_path, **{**WHOLE, **rows})
    found = list(loss.of_tables(tmp_path))
    checks = {each["check"]: each["ok"] for each in found if each["check"] != loss.UNACKNOWLEDGED}
    assert checks == FINE | ({check: False} if check else {})
    assert all(said in each["detail"] for each in found if each["check"] == check)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({"protocol": "syslog"}, {"protocol": "syslog"}, "cannot be told: 2 events by syslog"),
        ({"protocol": "forward"}, {"protocol": "relp"}, "cannot be told: 1 events by forward"),
        ({"protocol": "logjam"}, {"protocol": "forward", "attributes": '{"chunk":"c"}'}, "told: 1 events by logjam"),
    ],
)
def test_what_came_unacknowledged_cannot_be_told(tmp_path: Path, first: Row, second: Row, said: str) -> None:
    make(tmp_path, **{**WHOLE, "events": [event(0, **first), event(1, **second)]})
    *others, found = loss.of_tables(tmp_path)
    assert (found["check"], found["ok"]) == (loss.UNACKNOWLEDGED, True)
    assert said in found["detail"]
    assert {each["check"]: each["ok"] for each in others} == FINE


def test_an_erasure_that_is_under_way_is_no_loss(tmp_path: Path) -> None:
    for deletes, verdict in (("false", None), ('"offset" = 1', False)):
        make(lake := tmp_path / str(verdict), **WHOLE)
        erase(lake, offsets=[0], ids=[], deletes=deletes)
        assert {each["check"]: each["ok"] for each in loss.of_tables(lake)} == {**FINE, loss.PROOF: verdict}


def test_an_item_in_parts_that_was_sent_again_counts_once(tmp_path: Path) -> None:
    parts = [
        {**reject(number), "id": "d." + "1" * 32, "sha256": "x", "part": 1 + number % 2, "parts": 2}
        for number in range(2, 6)
    ]
    make(tmp_path, **{**WHOLE, "batches": [named(**batch(0, 6, 2, 4))], "quarantine": [*parts, reject(6)]})
    found = next(each for each in loss.of_tables(tmp_path) if each["check"] == loss.QUARANTINE)
    assert found["ok"]
    assert "2 bad_json" in found["detail"]


@pytest.mark.kafka
def test_the_verb_and_its_status(
    topics: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lead_to(topics, monkeypatch)
    rows = {"batches": [named(**batch(0, 3, 2, 1))], "quarantine": [reject(2)], "events": [event(0), event(1)]}
    whose = {"topic": topics.events_topic, "topic_id": asked(topics, topics.events_topic).id}
    whole = {name: [{**row, **whose} for row in each] for name, each in rows.items()}
    make(tmp_path / "lake", **whole)
    assert check_loss(tmp_path, topics.bootstrap_servers) == EXIT_FAILED  # the tables end beyond Kafka's end
    assert capsys.readouterr().out.splitlines()[-1] == "lost: kafka"
    put(topics, topics.events_topic, [(b"{}", event_headers(n)) for n in range(3)])
    assert check_loss(tmp_path, topics.bootstrap_servers, as_json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["verdict"], document["lost"]) == ("nothing was lost", False)
    assert [check["check"] for check in document["checks"]] == [*FINE, loss.KAFKA]
    assert check_loss(tmp_path, topics.bootstrap_servers, content=True) == EXIT_FAILED
    assert capsys.readouterr().out.splitlines()[-1] == "lost: content", "the rows are not those of these records"
    assert check_loss(tmp_path, topics.bootstrap_servers, since="2026-05-07T00:00") == 0


@pytest.mark.kafka
def test_a_topic_that_was_made_again_is_another(topics: KafkaSettings, tmp_path: Path) -> None:
    """It had grown beyond where the former one had landed, and nothing seemed lost."""
    put(topics, topics.events_topic, [(b"{}", event_headers(n)) for n in range(5)])
    make(tmp_path, batches=[{**batch(0, 3, 3), "topic": topics.events_topic}])
    for gaps, said in (
        ([], "landed_to 3, kafka_ends_at "),
        ([gap(3, None, reason="recreated")], "5 offsets are not landed"),
    ):
        make(tmp_path, gaps=gaps)
        (found,) = loss.of_kafka(topics, tmp_path)
        assert (found["ok"], said in found["detail"]) == (bool(gaps), True)


def test_the_tables_half_is_shown_where_kafka_is_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "lake", **WHOLE)
    assert check_loss(tmp_path, "127.0.0.1:1") == EXIT_DOUBT
    *tables, kafka, verdict = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in tables] == [["ok", name] for name in FINE]
    assert (kafka.split()[:2], verdict) == (["!!", "kafka"], "in doubt: kafka")
    assert check_loss(tmp_path) == 0
    assert "without a look at Kafka" in capsys.readouterr().out


def test_what_was_acknowledged_is_looked_for_in_both_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = [
        event(0, body='{"run":"5f0"}', received_time=MOMENT),
        event(1, body=None, payload=b"\xff5f0", received_time=MOMENT),
    ]
    early = event(2, body='{"run":"5f0"}', received_time=MOMENT - timedelta(days=1))
    bad = reject(3, id="d.3", raw=b"\xff5f0", received_time=MOMENT)
    make(tmp_path / "lake", batches=[named(**batch(0, 4, 3, 1))], events=[*mine, early], quarantine=[bad])
    tally = Tally("5f0", MOMENT, sent=4, acknowledged=3)
    assert landed_and_checked(tally, tmp_path) == 0
    first, *_ = capsys.readouterr().out.splitlines()
    assert first.split()[:5] == ["ok", "lake", "2", "of", "3"]
    tally.acknowledged = 4
    monkeypatch.setattr(verb, "LANDING_SECONDS", 0)
    assert landed_and_checked(tally, tmp_path) == EXIT_DOUBT
    assert capsys.readouterr().out.startswith("!!")
