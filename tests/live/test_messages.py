"""What the page shows of the newest messages, and where it finds an event."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from headrace_cli.operating.records import Filters
from headrace_live import messages as shown
from headrace_live import tables
from headrace_live.messages import messages
from headrace_live.tables import EventTrace

from tests.cli.operating.topics import event_headers, put, reject_headers
from tests.contract.embedded import EmbeddedKafka
from tests.contract.topic import own_topics
from tests.contract.waiting import PATIENCE


@pytest.mark.kafka
def test_messages_as_the_page_shows_them(kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = own_topics(kafka.bootstrap)
    bodies = [b'{"n":%d,"text":"\\u001b[1m"}' % number for number in range(9)]
    streams = [event_headers(number, stream=f"s{number % 2}") for number in range(9)]
    put(topics, topics.events_topic, list(zip(bodies, streams, strict=True)))
    put(topics, topics.quarantine_topic, [(b"\xff", reject_headers("bad_json"))])
    monkeypatch.setattr(shown, "MESSAGES", 3)
    monkeypatch.setattr(shown, "SECONDS", 600.0)  # however slow the machine is

    def asked(filters: Filters, text: str = "", *, quarantine: bool = False) -> list[dict[str, Any]]:
        return asyncio.run(messages(topics, filters, text, quarantine=quarantine))["messages"]

    def offsets(filters: Filters, text: str = "") -> list[str]:
        return [each["fields"]["offset"] for each in asked(filters, text)]

    assert offsets(Filters()) == ["8", "7", "6"]
    assert offsets(Filters(stream="s1")) == ["7", "5", "3"]
    assert offsets(Filters(), '"n":4') == ["4"]
    assert offsets(Filters(("courier",))) == []
    (one,) = asked(Filters(), '"n":0')
    assert (one["id"], one["stream"]) == ("d." + "0" * 32, "s0")
    assert "\x1b" not in one["content"] + "".join(one["fields"].values())
    put(topics, topics.events_topic, list(zip(bodies, streams, strict=True)), transactions=True)
    assert offsets(Filters()) == ["25", "23", "21"], "between them are ends of transactions"
    (rejected,) = asked(Filters(), quarantine=True)
    assert (rejected["reason"], rejected["content"]) == ("bad_json", "ff")


@pytest.mark.kafka
def test_an_event_is_followed_to_its_record(kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "SECONDS", PATIENCE)
    topics = own_topics(kafka.bootstrap)
    put(topics, topics.events_topic, [(b"{}", event_headers(number)) for number in range(5)])
    put(topics, topics.quarantine_topic, [(b"{", reject_headers("bad_json"))])

    def place(identity: str, **landed: Any) -> tuple[Any, ...]:
        way = EventTrace(identity, **landed)
        asyncio.run(tables._on_kafka(way, topics, None))
        found = way.record or {}
        return found.get("topic"), found.get("offset"), way.said

    assert place(f"d.{3:032x}") == (topics.events_topic, 3, [])
    assert place("newest") == (topics.events_topic, 4, [])
    assert place("u." + "0" * 32) == (topics.quarantine_topic, 0, [])
    assert place("d." + "f" * 32) == (None, None, [])
    row = {"topic": topics.events_topic, "partition": 0, "offset": 2}
    assert place(f"d.{2:032x}", row=row) == (topics.events_topic, 2, [])
    gone = place(f"d.{9:032x}", row={**row, "offset": 9})
    assert gone[:2] == (None, None)
    assert "Kafka has deleted its record" in gone[2][0]
