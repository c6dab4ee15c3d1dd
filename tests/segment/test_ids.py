"""Event ids: the rule of the design, computed apart, and what a resend changes."""

from __future__ import annotations

import itertools
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.ids import hashed
from tests.segment import speaking
from tests.segment.instant import drive
from tests.segment.recorded import W1
from tests.segment.speaking import block, event, events, over_the_end
from tests.segment.speaking_today import append, setup
from tests.segment.test_today_session import Talk, created

TWENTY = json.loads((Path(__file__).parent / "ids.json").read_text())


def by_the_rule(segment: str, writer: bytes, level: int, data: bytes) -> str:
    return "d." + hashed(b"segment", segment.encode(), writer, struct.pack(">q", level), data)


@pytest.mark.parametrize("case", TWENTY, ids=[case["name"] for case in TWENTY])
def test_the_twenty_that_are_written_down(case: dict[str, Any]) -> None:
    segment, writer = case["segment"], bytes.fromhex(case["writer"])
    data = [bytes.fromhex(each) for each in case["events"]]
    level, expected = 0, []
    for each in data:
        level += 8 + len(each)
        expected.append(by_the_rule(segment, writer, level, each))
    assert case["ids"] == expected
    whole = events(*data)
    ways = [block(0, whole, writer)]
    if data:
        ways.append(over_the_end(0, events(*data[:-1]), event(data[-1]), 5, writer))
    for way in ways:
        found = drive([speaking.setup(segment, writer) + way]).flat
        assert [part.id if isinstance(part.id, str) else part.id.decode() for part in found] == expected


# Today's dialect


@pytest.mark.parametrize("stored", range(5))
@pytest.mark.parametrize("borders", list(itertools.product([True, False], repeat=3)))
def test_event_numbers_name_events_whatever_blocks_they_come_in(stored: int, borders: tuple[bool, ...]) -> None:
    """A client's connection breaks when `stored` of its events are; what it sends again comes in other blocks."""
    data = [b"x", b"x", b"y", b"x"]
    expected = [by_the_rule("a", W1, number, each) for number, each in enumerate(data, 1)]
    store, again = created()
    if stored:
        again.hear(setup(), append(stored, *data[:stored]))
    resent = Talk(store)
    resent.hear(setup())
    begin = stored
    for behind in range(stored + 1, 5):
        if behind == 4 or borders[behind - 1]:
            resent.hear(append(behind, *data[begin:behind]))
            begin = behind
    assert [event.id for event in again.outcome.events + resent.outcome.events] == expected
    assert store.content("a") == events(*data)


def test_numbers_may_skip_and_no_two_events_share_one() -> None:
    _, talk = created()
    talk.hear(setup(), append(9, b"x", b"x"), append(12, b"x", b"x", b"x"), append(20, b"x"))
    expected = [by_the_rule("a", W1, number, b"x") for number in (8, 9, 10, 11, 12, 20)]
    assert [event.id for event in talk.outcome.events] == expected
