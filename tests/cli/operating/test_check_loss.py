"""`headrace check-loss`: each kind of loss is found by its check, alone, and nothing else is."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from headrace_cli.ground import EXIT_DOUBT
from headrace_cli.operating.exposition import Scrape, parts_of
from headrace_cli.operating.parts import CheckResult, Severity
from headrace_cli.wire import loss
from headrace_cli.wire.loss import LOW, Backlog, waiting
from headrace_cli.wire.quarantined.items import ItemReader
from headrace_cli.wire.target import ASKED
from headrace_common.operations.settings import KafkaSettings, TopicSettings
from headrace_common.session.again import PublishedEvent

from tests.cli.operating.test_replay import EVENTS, lake_of, rejected
from tests.cli.operating.topics import event_headers, lead_to, put
from tests.contract.embedded import EmbeddedKafka
from tests.contract.topic import own_topics
from tests.lake.test_query import batch, erase, event, gap, make, reject

UNACKNOWLEDGEABLE = "headrace_events_unacknowledgeable_total"


def named(**values: object) -> dict[str, Any]:
    return {"topic": "t", "number": 1, **values}


def verdicts(findings: list[CheckResult]) -> dict[str, Severity]:
    return {found.check: found.verdict for found in findings}


FINE = dict.fromkeys((loss.PROOF, loss.GAPS, loss.LOGJAM, loss.QUARANTINE), Severity.FINE)
WHOLE: dict[str, list[Any]] = {
    "batches": [named(**batch(0, 2, 2))],
    "events": [event(0), event(1)],
}


def test_a_whole_lake_is_fine(tmp_path: Path) -> None:
    make(tmp_path, **WHOLE)
    assert verdicts(loss.of_tables(tmp_path)) == FINE


@pytest.mark.parametrize(
    ("rows", "check", "verdict", "said"),
    [
        ({"events": [event(0)]}, loss.PROOF, Severity.WRONG, "the events table has what batches says"),
        (
            {"gaps": [gap(2, 7)]},
            loss.GAPS,
            Severity.WRONG,
            "5 offsets were lost before they landed (retention)",
        ),
        (
            {"gaps": [{**gap(0, 0, reason="logjam"), "from": None, "to": None, "device": 7, "source": "/logjam/d",
                       "from_sequence": 10, "to_sequence": 14}]},
            loss.LOGJAM,
            Severity.WRONG,
            "4 numbers of 1 Logjam devices never came, in 1 gaps",
        ),
        (
            {"batches": [named(**batch(0, 3, 2, 1))], "quarantine": [reject(2)]},
            loss.QUARANTINE,
            Severity.DOUBT,
            "1 were not understood, and are kept byte for byte: 1 bad_json by unknown",
        ),
    ],
)  # fmt: skip
def test_a_loss_is_found_by_its_check_alone(
    tmp_path: Path, rows: dict[str, list[Any]], check: str, verdict: Severity, said: str
) -> None:
    make(tmp_path, **{**WHOLE, **rows})
    findings = loss.of_tables(tmp_path)
    assert verdicts(findings) == {**FINE, check: verdict}
    (found,) = (found for found in findings if found.check == check)
    assert said in found.reason
    assert found.next


@pytest.mark.parametrize(("gone", "verdict"), [(False, Severity.DOUBT), (True, Severity.WRONG)])
def test_an_erasure_that_is_under_way_is_no_loss(tmp_path: Path, gone: bool, verdict: Severity) -> None:
    make(tmp_path, **WHOLE)
    erase(tmp_path, offsets=[0], ids=[], deletes='"offset" = 1' if gone else "false")
    assert verdicts(loss.of_tables(tmp_path)) == {**FINE, loss.PROOF: verdict}


def test_an_item_in_parts_that_was_sent_again_counts_once(tmp_path: Path) -> None:
    parts = [
        {**reject(number), "id": "d." + "1" * 32, "sha256": "x", "part": 1 + number % 2, "parts": 2}
        for number in range(2, 6)
    ]
    make(tmp_path, **{**WHOLE, "batches": [named(**batch(0, 6, 2, 4))], "quarantine": [*parts, reject(6)]})
    found = next(each for each in loss.of_tables(tmp_path) if each.check == loss.QUARANTINE)
    assert found.reason.startswith("2 were not understood")


def test_what_was_replayed_and_has_landed_is_no_doubt(tmp_path: Path) -> None:
    client = ASKED["forward"]()
    items = [item for _ in range(2) for item in rejected("forward", client, client.frame(EVENTS))]
    (first,), (second,) = (ItemReader(wide=True).read(item).events for item in items)
    assert first.id != second.id

    def found(folder: str, *landed: PublishedEvent) -> CheckResult:
        lake = lake_of(tmp_path / folder, items, landed)
        return next(each for each in loss.of_tables(lake) if each.check == loss.QUARANTINE)

    assert found("none").reason.startswith("2 were not understood")
    half = found("half", first)
    assert (half.verdict, half.reason[:22]) == (Severity.DOUBT, "1 were not understood,")
    assert found("both", first, second).verdict is Severity.FINE


@pytest.mark.parametrize(("days", "count"), [(None, 1), (3, 2), (1, 1)])
def test_the_tables_know_whose_clients_asked_for_nothing(tmp_path: Path, days: int | None, count: int) -> None:
    now = datetime.now(UTC)
    before = now - timedelta(days=2)
    rows = [
        event(0, protocol="forward", attributes=None, landed_at=now),
        event(1, protocol="forward", attributes='{"index":3}', landed_at=before),
        event(2, protocol="forward", attributes='{"chunk":"a","index":3}', landed_at=now),
        event(3, protocol="courier", attributes=None, landed_at=now),
    ]
    make(tmp_path, events=rows)
    unasked = loss.unacknowledged(tmp_path, None if days is None else now - timedelta(days=days))
    assert unasked == {"forward": count}
    assert loss.of_parts([receiver(0)], unasked).verdict is Severity.DOUBT


def test_a_gap_that_another_consumer_covers_is_none(tmp_path: Path) -> None:
    covered = {**gap(0, 0, reason="logjam"), "from": None, "to": None, "covered": True}
    make(tmp_path, **WHOLE, gaps=[covered])
    assert verdicts(loss.of_tables(tmp_path)) == FINE


@pytest.mark.parametrize(
    ("reason", "detail"),
    [("joined", "{}"), ("logjam", '{"from":1,"to":14,"before":3}')],
    ids=["", "as it was marked before"],
)
def test_what_a_device_published_before_us_is_no_loss(tmp_path: Path, reason: str, detail: str) -> None:
    numbers = {"from": None, "to": None, "device": 7, "from_sequence": 1, "to_sequence": 14, "detail": detail}
    make(tmp_path, **WHOLE, gaps=[{**gap(0, 0, reason=reason), **numbers}])
    findings = loss.of_tables(tmp_path)
    assert verdicts(findings) == FINE
    (found,) = (found for found in findings if found.check == loss.LOGJAM)
    assert ("published before we heard them" in found.reason) == (reason == "joined")


def receiver(count: float = 0, problem: str = "") -> Scrape:
    return Scrape(
        "forward", "http://h:1", 0, values={} if problem else {UNACKNOWLEDGEABLE: {(): count}}, problem=problem
    )


@pytest.mark.parametrize(
    ("scrapes", "verdict"),
    [
        ([receiver(0), receiver(3)], Severity.DOUBT),
        ([receiver(0), receiver(problem="does not answer")], Severity.UNKNOWN),
        ([receiver(0), Scrape("lake", "http://h:2", 0, problem="does not answer")], Severity.FINE),
        ([], Severity.UNKNOWN),
    ],
)
def test_clients_that_ask_for_nothing_are_a_doubt(scrapes: list[Scrape], verdict: Severity) -> None:
    assert loss.of_parts(scrapes).verdict is verdict


def test_addresses() -> None:
    urls = ["h:1", "a=https://h/metrics", "http://h:1/x?a=b"]
    found = asyncio.run(parts_of(Path("x"), urls))
    assert found == [("", "http://h:1"), ("a", "https://h"), ("", "http://h:1/x?a=b")]


@pytest.mark.parametrize(("oldest", "near"), [(17, False), (15, True)])
def test_a_limit_in_bytes(oldest: int, near: bool) -> None:
    """A tenth of the 112 records that a full partition holds."""
    assert loss.is_near(5, oldest, 117) is near


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.parametrize(("left", "doubtful"), [(LOW * 3600 + 120, False), (LOW * 3600 - 120, True)])
def test_what_has_not_landed_is_measured_against_the_topics_retention(
    kafka: EmbeddedKafka, left: float, doubtful: bool
) -> None:
    topics = own_topics(
        kafka.bootstrap, TopicSettings(events_partitions=1, segments_partitions=0, events_retention=3600)
    )
    stored = int(1000 * (time.time() - 3600 + left))
    put(topics, topics.events_topic, [(b"{}", event_headers(n)) for n in range(2)], timestamp=stored)
    put(topics, topics.events_topic, [(b"{}", event_headers(2))])
    place = (topics.events_topic, 0)
    assert asyncio.run(waiting(topics, {place: 1}, {place: (0, 3)})) == [Backlog(place, 2, doubtful)]
    assert asyncio.run(waiting(topics, {place: 3}, {place: (0, 3)})) == []
    endings = loss.of_kafka(topics, {place: 4}, {place: (0, 3)})
    assert verdicts(endings) == {loss.KAFKA: Severity.WRONG, loss.LAG: Severity.FINE}


@pytest.mark.kafka
def test_the_verb_and_its_status(
    kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    topics: KafkaSettings = own_topics(kafka.bootstrap)
    lead_to(topics, monkeypatch)
    rows = {"batches": [named(**batch(0, 3, 2, 1))], "quarantine": [reject(2)], "events": [event(0), event(1)]}
    whole = {name: [{**row, "topic": topics.events_topic} for row in each] for name, each in rows.items()}
    make(tmp_path / "lake", **whole)
    put(topics, topics.events_topic, [(b"{}", event_headers(n)) for n in range(3)])
    assert loss.check_loss(tmp_path, kafka.bootstrap) == EXIT_DOUBT
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == "in doubt: quarantine"
    assert loss.check_loss(tmp_path, kafka.bootstrap, ignore=[loss.QUARANTINE], as_json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "nothing was lost, without a look at unacknowledgeable"
    assert [check["check"] for check in document["checks"]] == list(loss.CHECKS)
    assert loss.check_loss(tmp_path, kafka.bootstrap, since="2026-05-07T00:00") == 0
