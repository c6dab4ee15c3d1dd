"""The newest records of a topic: how many are kept, in bytes too, and what the page shows of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest
from headrace_cli.operating.live import tables
from headrace_cli.operating.live.tables import Way
from headrace_cli.operating.watch import topic
from headrace_cli.operating.watch.records import Filters, Kept
from headrace_cli.operating.watch.topic import TopicReader, messages, newest

from tests.cli.operating.topics import event_headers, put, reject_headers
from tests.contract.embedded import EmbeddedKafka
from tests.contract.topic import own_topics
from tests.contract.waiting import PATIENCE


class Reader:
    """Reads what a test has put there, a few at a time."""

    def __init__(self, records: Sequence[Kept], end: int) -> None:
        self._left = list(records)
        self._end = end

    async def step(self) -> list[Kept]:
        step, self._left = self._left[:3], self._left[3:]
        return step

    def before_the_end(self, record: Kept) -> bool:
        return record.offset < self._end

    async def at_the_end(self) -> bool:
        return not self._left


def kept(offset: int, size: int = 10) -> Kept:
    return Kept("t", 0, offset, offset, (), b"x" * size)


def reader(records: Sequence[Kept], end: int = 100) -> TopicReader:
    return cast("TopicReader", Reader(records, end))


async def test_the_newest_are_kept_the_oldest_first() -> None:
    found = await newest(reader([kept(n) for n in range(10)], end=8), 3, lambda record: record.offset != 6, 1000)
    assert [record.offset for record in found.records] == [4, 5, 7]
    assert (found.read, found.held, found.cut, found.late) == (8, 30, False, False)


@pytest.mark.parametrize(("most", "offsets", "cut"), [(30, [0, 1, 2], False), (29, [1, 2], True), (9, [], True)])
async def test_no_more_bytes_are_held_than_allowed(most: int, offsets: list[int], cut: bool) -> None:
    found = await newest(reader([kept(n) for n in range(3)]), 3, lambda _: True, most)
    assert [record.offset for record in found.records] == offsets
    assert (found.cut, found.held) == (cut, 10 * len(offsets))


async def test_it_ends_when_its_time_is_over() -> None:
    found = await newest(reader([kept(n) for n in range(9)]), 9, lambda _: True, 1000, seconds=-1)
    assert (found.read, found.late) == (3, True)


@pytest.mark.kafka
def test_messages_as_the_page_shows_them(kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = own_topics(kafka.bootstrap)
    bodies = [b'{"n":%d,"text":"\\u001b[1m"}' % number for number in range(9)]
    streams = [event_headers(number, stream=f"s{number % 2}") for number in range(9)]
    put(topics, topics.events_topic, list(zip(bodies, streams, strict=True)))
    put(topics, topics.quarantine_topic, [(b"\xff", reject_headers("bad_json"))])
    monkeypatch.setattr(topic, "MESSAGES", 3)
    monkeypatch.setattr(topic, "SECONDS", 600.0)  # however slow the machine is

    def asked(filters: Filters, text: str = "", *, quarantine: bool = False) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = asyncio.run(messages(topics, filters, text, quarantine=quarantine))["messages"]
        return found

    def offsets(filters: Filters, text: str = "") -> list[str]:
        return [each["fields"]["offset"] for each in asked(filters, text)]

    assert offsets(Filters()) == ["8", "7", "6"]
    assert offsets(Filters(stream="s1")) == ["7", "5", "3"]
    assert offsets(Filters(), '"n":4') == ["4"]
    assert offsets(Filters(("courier",))) == []
    (one,) = asked(Filters(), '"n":0')
    assert (one["id"], one["stream"], one["fault"]) == ("d." + "0" * 32, "s0", "")
    assert "\x1b" not in one["content"] + "".join(one["fields"].values())
    (rejected,) = asked(Filters(), quarantine=True)
    assert (rejected["reason"], rejected["content"]) == ("bad_json", "ff")


@pytest.mark.kafka
def test_an_event_is_followed_to_its_record(kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "SECONDS", PATIENCE)
    topics = own_topics(kafka.bootstrap)
    put(topics, topics.events_topic, [(b"{}", event_headers(number)) for number in range(5)])
    put(topics, topics.quarantine_topic, [(b"{", reject_headers("bad_json"))])

    def place(identity: str, **landed: Any) -> tuple[Any, ...]:
        way = Way(identity, **landed)
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
