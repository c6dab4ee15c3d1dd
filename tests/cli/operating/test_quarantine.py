"""Items of quarantine, from rows of the lake. What is understood by now becomes the event that it would have been, once."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from headrace_cli.verbs.explain import session_of
from headrace_cli.verbs.quarantine import outcome_of, replay
from headrace_cli.wire.items import ItemReader, items_of
from headrace_cli.wire.target import ASKED
from headrace_common.operations.settings import LimitSettings
from headrace_common.publishing.rejects import refusal
from headrace_common.record.contract import DETERMINISTIC
from headrace_common.record.encoding import decode
from headrace_common.record.event import Envelope, Part, Reject, unique_id
from headrace_common.session.again import QuarantinedItem, ReplayOutcome, parts_of

from tests.cli.operating.topics import lead_to
from tests.contract.embedded import EmbeddedKafka
from tests.contract.topic import Stored, events, now, own_topics
from tests.lake.test_query import event as landed_event
from tests.lake.test_query import make, reject

MOMENT = datetime(2026, 5, 6, 12, tzinfo=UTC)
NAME = "d." + "1" * 32


def row(number: int, part: int = 1, parts: int = 1, raw: bytes = b"x", **values: Any) -> dict[str, Any]:
    about = {
        "id": NAME,
        "part": part,
        "parts": parts,
        "raw": raw,
        "sha256": None,
        "received_time": MOMENT,
        "topic": "t",
    }
    return {**reject(number), **about, **values}


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([row(1, 2, 3, b"b"), row(2, 3, 3, b"c"), row(3, 2, 3, b"b"), row(4, 1, 3, b"a")], [(NAME, b"abc", "")]),
        ([row(1), row(2), row(3, sha256=hashlib.sha256(b"x").hexdigest())], [(NAME, b"x", "")] * 2),
        ([row(1, 2, 3, b"b")], [(NAME, b"b", "2 of 3 parts are missing")]),
        ([row(1, sha256="0" * 64)], [(NAME, b"x", "its bytes do not have the hash that they had")]),
        *(
            ([row(7, id=name)], [("t-0-7", b"x", "")])
            for name in (None, "", "../../x", "d.1", "d." + "G" * 32, "x." + "0" * 32)
        ),
    ],
)
def test_items_from_their_parts(rows: list[Any], found: list[tuple[str, bytes, str]], tmp_path: Path) -> None:
    make(tmp_path, quarantine=rows)
    assert [(item.name, item.content, problem) for item, problem in items_of(tmp_path)] == found


def test_the_newest_come_first_and_others_are_left_out(tmp_path: Path) -> None:
    later = MOMENT + timedelta(hours=1)
    rows = [row(1, reason="internal"), row(2, id="d." + "2" * 32, received_time=later), row(3, id=None, protocol="x")]
    make(tmp_path, quarantine=rows)
    assert next(items_of(tmp_path))[0].received_ms == later.timestamp() * 1000
    assert [item.reason for item, _ in items_of(tmp_path, ["internal"])] == ["internal"]
    assert [item.protocol for item, _ in items_of(tmp_path, protocols=["x"])] == ["x"]
    assert len(list(items_of(tmp_path, since=later))) == 1


MS = 1_700_000_000_000
EVENTS: list[dict[str, Any]] = [{"n": 1}, {"n": 2, "filler": "x" * 2000}, {"n": 3}]
each_protocol = pytest.mark.parametrize("protocol", sorted(ASKED))


def made(protocol: str, data: bytes, event_bytes: int = 1024) -> list[Part]:
    """What a receiver makes of a client's first frame, by a limit for events."""
    with pytest.MonkeyPatch.context() as limited:
        limited.setenv("HEADRACE_LIMITS__EVENT_BYTES", str(event_bytes))
        return list(parts_of(session_of(protocol), ASKED[protocol]().again() + data, MS))


def item_of(part: Part) -> QuarantinedItem:
    assert isinstance(part, Reject)
    return QuarantinedItem(
        part.id.decode(), part.reason.value, part.protocol, part.subject, part.source, MS,
        hashlib.sha256(part.raw).hexdigest(), orjson.loads(part.attributes), part.raw,
    )  # fmt: skip


def rejected(protocol: str, data: bytes) -> list[QuarantinedItem]:
    return [item_of(part) for part in made(protocol, data) if isinstance(part, Reject)]


def read(item: QuarantinedItem) -> ReplayOutcome:
    return ItemReader().read(item)


@each_protocol
def test_what_was_too_large_becomes_its_event(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = ASKED[protocol]().frame(EVENTS)
    (item,) = rejected(protocol, data)
    large = made(protocol, data, 1 << 20)[1]
    monkeypatch.setenv("HEADRACE_FORWARD__SHARED_KEY", "a key")  # no item logs in again
    (event,) = read(item).events
    assert read(item).events[0].id == event.id
    assert event.id.startswith("d.")
    assert not isinstance(large, Reject)
    value, headers = decode(large)
    own = () if protocol != "lumberjack" else ("ce_id",)  # whose events here have nothing that names them
    assert event.value == value
    assert [pair for pair in event.headers if pair[0] not in own] == [pair for pair in headers if pair[0] not in own]


def test_the_rest_of_too_many_becomes_its_events(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = ASKED["forward"]().frame([{"n": number} for number in range(5)])
    for data in (packed, orjson.dumps(["t", [[1, {"n": number}] for number in range(5)], {"chunk": "c"}])):
        whole = [decode(part) for part in made("forward", data) if not isinstance(part, Reject)]
        with monkeypatch.context() as limited:
            limited.setattr(LimitSettings, "frame_events", 2)
            (item,) = rejected("forward", data)
        assert [(event.value, event.headers) for event in read(item).events] == whole[2:]


@each_protocol
def test_what_kafka_refused_becomes_the_event_that_it_was(protocol: str) -> None:
    (part,) = made(protocol, ASKED[protocol]().frame([{"n": 1}]))
    assert not isinstance(part, Reject)
    value, headers = decode(part)
    (event,) = read(item_of(refusal(part))).events
    assert event.value == value
    assert {**dict(headers), "ce_id": event.id.encode()} == dict(event.headers)
    if dict(headers)["ce_id"].startswith(DETERMINISTIC):
        assert event.headers == headers


def test_a_random_id_is_the_same_in_each_replay() -> None:
    """The job compares no random ones: a second replay, before the first has landed, would land once more."""
    item = item_of(refusal(Envelope("courier", "/courier/x", "s").event(unique_id(), b"2023-11-14T22:13:20Z", b"1")))
    (one,), (again,) = read(item).events, read(item).events
    assert one.id == again.id
    assert one.id.startswith("d.")


@pytest.mark.parametrize("protocol", [name for name, client in sorted(ASKED.items()) if client().broken({})])
def test_what_is_not_understood_says_why(protocol: str) -> None:
    (item,) = rejected(protocol, ASKED[protocol]().faulty([{"n": 1}]))
    assert (read(item).events, read(item).rejects) == ([], {item.reason: 1})
    assert "breaks the contract" in read(replace(item, reason="null_value")).impossible
    assert "nobody reads x" in read(replace(item, protocol="x")).impossible
    outcomes = [ReplayOutcome(), ReplayOutcome(rejects=Counter(["bad_json"])), ReplayOutcome(impossible="why")]
    said = ["understood", "still bad_json", "cannot be read again: why"]
    assert [outcome_of(each) for each in outcomes] == said


def lake_of(folder: Path, items: Sequence[QuarantinedItem], landed: Sequence[Stored] = ()) -> Path:
    """A lake with these items in quarantine, and these events."""
    received = {"part": 1, "parts": 1, "received_time": datetime.fromtimestamp(MS / 1000, UTC)}
    rows = []
    for number, item in enumerate(items):
        known = {name: value for name, value in vars(item).items() if name not in ("name", "received_ms", "content")}
        about = {"id": item.name, "raw": item.content, "attributes": json.dumps(item.attributes)}
        rows.append({**reject(number), **received, **known, **about})
    there = [landed_event(number, 1, event_id=record.id) for number, record in enumerate(landed)]
    make(folder, quarantine=rows, events=there)
    return folder


@pytest.mark.kafka
def test_what_is_published_is_published_once(
    kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    topics = own_topics(kafka.bootstrap)
    lead_to(topics, monkeypatch)
    items = [item for name, client in sorted(ASKED.items()) for item in rejected(name, client().frame(EVENTS))]

    def replayed(lake: Path, **options: Any) -> str:
        assert replay(tmp_path, str(lake), **options) == 0
        return capsys.readouterr().err

    lake, published = lake_of(tmp_path / "lake", items), f"{len(items)} events were published"
    assert f"--apply publishes {len(items)} events; nothing was changed." in replayed(lake)
    assert now(events(topics)) == []
    assert published in replayed(lake, apply=True)
    first = now(events(topics))
    assert all(b'"n":2' in record.value.replace(b"\\", b"") for record in first)  # in a message of syslog it is a text
    assert len(first) == len(items)
    landed = lake_of(tmp_path / "landed", items, first)
    assert "0 events were published" in replayed(landed, apply=True)
    assert published in replayed(lake, apply=True)
    assert sorted(record.id for record in now(events(topics))) == sorted(record.id for record in first * 2)
