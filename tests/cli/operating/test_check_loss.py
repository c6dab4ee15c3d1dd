"""`headrace check-loss`: each kind of loss is found by its check, alone, and nothing else is."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from headrace_cli.ground import EXIT_DOUBT, EXIT_FAILED
from headrace_cli.operating import loss
from headrace_cli.operating.findings import Severity
from headrace_cli.verbs.check_loss import check_loss
from headrace_common.operations.settings import KafkaSettings

from tests.cli.operating.topics import event_headers, lead_to, put
from tests.contract.embedded import EmbeddedKafka
from tests.contract.topic import own_topics
from tests.lake.test_query import MOMENT, batch, erase, event, gap, make, reject


def named(**values: object) -> dict[str, Any]:
    return {"topic": "t", "number": 1, **values}


def verdicts(lake: Path) -> dict[str, Severity]:
    return {found.check: found.verdict for found in loss.of_tables(lake)}


FINE = dict.fromkeys((loss.PROOF, loss.GAPS, loss.LOGJAM, loss.QUARANTINE), Severity.FINE)
WHOLE: dict[str, list[Any]] = {
    "batches": [named(**batch(0, 2, 2))],
    "events": [event(0), event(1)],
}
DEVICE = {"from": None, "to": None, "device": 7, "source": "/logjam/d", "from_sequence": 10, "to_sequence": 14}


@pytest.mark.parametrize(
    ("rows", "check", "said"),
    [
        ({"events": [event(0)]}, loss.PROOF, "each record of a range"),
        ({"gaps": [gap(2, 7)]}, loss.GAPS, "5 offsets were lost before they landed (retention)"),
        (
            {"gaps": [{**gap(0, 0, reason="logjam"), **DEVICE}]},
            loss.LOGJAM,
            "4 numbers of 1 Logjam devices never came, in 1 gaps",
        ),
    ],
)
def test_a_loss_is_found_by_its_check_alone(tmp_path: Path, rows: dict[str, list[Any]], check: str, said: str) -> None:
    make(tmp_path, **{**WHOLE, **rows})
    assert verdicts(tmp_path) == {**FINE, check: Severity.WRONG}
    (found,) = (found for found in loss.of_tables(tmp_path) if found.check == check)
    assert said in found.reason
    assert found.next


@pytest.mark.parametrize(
    "rows",
    [
        {},
        {"gaps": [{**gap(0, 0, reason="joined"), **DEVICE}]},
    ],
    ids=["whole", "published before us"],
)
def test_what_is_no_loss(tmp_path: Path, rows: dict[str, list[Any]]) -> None:
    make(tmp_path, **WHOLE, **rows)
    assert verdicts(tmp_path) == FINE


@pytest.mark.parametrize(("gone", "verdict"), [(False, Severity.DOUBT), (True, Severity.WRONG)])
def test_an_erasure_that_is_under_way_is_no_loss(tmp_path: Path, gone: bool, verdict: Severity) -> None:
    make(tmp_path, **WHOLE)
    erase(tmp_path, offsets=[0], ids=[], deletes='"offset" = 1' if gone else "false")
    assert verdicts(tmp_path) == {**FINE, loss.PROOF: verdict}


def test_an_item_in_parts_that_was_sent_again_counts_once(tmp_path: Path) -> None:
    parts = [
        {**reject(number), "id": "d." + "1" * 32, "sha256": "x", "part": 1 + number % 2, "parts": 2}
        for number in range(2, 6)
    ]
    make(tmp_path, **{**WHOLE, "batches": [named(**batch(0, 6, 2, 4))], "quarantine": [*parts, reject(6)]})
    found = next(each for each in loss.of_tables(tmp_path) if each.check == loss.QUARANTINE)
    assert found.verdict is Severity.FINE
    assert "2 bad_json" in found.reason


def test_a_gap_that_another_consumer_covers_is_none(tmp_path: Path) -> None:
    bound = int(MOMENT.timestamp() * 1000)
    missed = {
        "source": "/logjam/d",
        "device": 7,
        "from_sequence": 2,
        "to_sequence": 4,
        "received_time": MOMENT,
        "detail": json.dumps({"after": bound, "before": bound}),
    }
    marked = {**gap(0, 0, reason="logjam"), "from": None, "to": None, "offset": 0, **missed}
    about: dict[str, Any] = {"protocol": "logjam", "source": "/logjam/d"}
    rows = [
        event(number - 2, **about, received_time=at, attributes=f'{{"device":7,"sequence":{number}}}')
        for number, at in ((2, MOMENT), (3, MOMENT - timedelta(seconds=4)))
    ]
    make(tmp_path, batches=WHOLE["batches"], events=rows, gaps=[marked])
    assert verdicts(tmp_path) == FINE
    DeltaTable(str(tmp_path / "events")).update(
        {"received_time": "received_time - interval '2 seconds'"}, predicate='"offset" = 1'
    )
    (found,) = (found for found in loss.of_tables(tmp_path) if found.check == loss.LOGJAM)
    assert found.verdict is Severity.WRONG, "of another life of the device"


@pytest.mark.kafka
def test_the_verb_and_its_status(
    kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    topics: KafkaSettings = own_topics(kafka.bootstrap)
    lead_to(topics, monkeypatch)
    rows = {"batches": [named(**batch(0, 3, 2, 1))], "quarantine": [reject(2)], "events": [event(0), event(1)]}
    whole = {name: [{**row, "topic": topics.events_topic} for row in each] for name, each in rows.items()}
    make(tmp_path / "lake", **whole)
    assert check_loss(tmp_path, kafka.bootstrap) == EXIT_FAILED  # the tables end beyond Kafka's end
    assert capsys.readouterr().out.splitlines()[-1] == "lost: kafka"
    put(topics, topics.events_topic, [(b"{}", event_headers(n)) for n in range(3)])
    assert check_loss(tmp_path, kafka.bootstrap, as_json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["verdict"], document["fine"]) == ("nothing was lost", True)
    assert [check["check"] for check in document["checks"]] == [*FINE, loss.KAFKA]
    assert check_loss(tmp_path, kafka.bootstrap, content=True) == EXIT_FAILED
    assert capsys.readouterr().out.splitlines()[-1] == "lost: content", "the rows are not those of these records"
    assert check_loss(tmp_path, kafka.bootstrap, since="2026-05-07T00:00") == 0


def test_the_tables_half_is_shown_where_kafka_is_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "lake", **WHOLE)
    assert check_loss(tmp_path, "127.0.0.1:1") == EXIT_DOUBT
    *tables, _, verdict = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in tables] == [["ok", name] for name in FINE]
    assert verdict == "in doubt: kafka"
    assert check_loss(tmp_path) == 0
    assert "without a look at kafka" in capsys.readouterr().out
