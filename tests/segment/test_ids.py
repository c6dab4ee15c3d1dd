"""Event ids: the rule of the design, computed apart, and what a resend changes."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.segment.instant import Driven, drive
from tests.segment.speaking import block, event, events, over_the_end, setup

TWENTY = json.loads((Path(__file__).parent / "ids.json").read_text())


def by_the_rule(segment: str, writer: bytes, level: int, data: bytes) -> str:
    """BLAKE2b of 128 bits over the protocol's name and the fields, each as u32 length and bytes."""
    fields = (b"segment", segment.encode(), writer, struct.pack(">q", level), data)
    state = hashlib.blake2b(b"".join(struct.pack(">I", len(each)) + each for each in fields), digest_size=16)
    return f"d.{state.hexdigest()}"


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
        found = drive([setup(segment, writer) + way]).flat
        assert [part.id if isinstance(part.id, str) else part.id.decode() for part in found] == expected


def test_there_are_twenty_all_different() -> None:
    assert len(TWENTY) == 20
    every = [event_id for case in TWENTY for event_id in case["ids"]]
    assert len(set(every)) == len(every)


def test_what_is_left_of_a_block_keeps_its_ids() -> None:
    data = [bytes([number]) * number for number in range(6)]
    first = [each.id for each in drive([setup() + block(0, events(*data))]).events]
    for stored in range(7):
        driven = Driven()
        driven.hear(setup(), block(0, events(*data[:stored])))
        driven.hear(block(0, events(*data)))
        assert [each.id for each in driven.outcome.events] == first
