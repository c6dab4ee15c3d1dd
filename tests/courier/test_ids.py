"""Event ids: the rule of the design, computed apart, and what a resend changes."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from headrace_courier.wire import evnt, jdat

from tests.courier.driving import NONCE, drive, every_way, numbered

TWENTY = json.loads((Path(__file__).parent / "ids.json").read_text())


def by_the_rule(nonce: bytes, left: int, event: bytes) -> str:
    """BLAKE2b of 128 bits over the protocol's name and the fields, each as u32 length and bytes."""
    fields = (b"courier", nonce, struct.pack(">I", left), event)
    state = hashlib.blake2b(b"".join(struct.pack(">I", len(each)) + each for each in fields), digest_size=16)
    return f"d.{state.hexdigest()}"


@pytest.mark.parametrize("case", TWENTY, ids=[case["name"] for case in TWENTY])
def test_the_twenty_that_are_written_down(case: dict[str, Any]) -> None:
    nonce, events = bytes.fromhex(case["nonce"]), [bytes.fromhex(event) for event in case["events"]]
    expected = [by_the_rule(nonce, len(events) - index, event) for index, event in enumerate(events)]
    assert case["ids"] == expected
    for make in (jdat, evnt):
        found = every_way(make(nonce, events)).flat
        assert [part.id if isinstance(part.id, str) else part.id.decode() for part in found] == expected


def test_there_are_twenty_all_different() -> None:
    assert len(TWENTY) == 20
    every = [event_id for case in TWENTY if not case["name"].startswith("again: ") for event_id in case["ids"]]
    assert len(set(every)) == len(every)
    for case in TWENTY:
        if case["name"].startswith("again: "):
            (first,) = [other for other in TWENTY if other["name"] == case["name"][7:]]
            assert case["ids"] == first["ids"][-len(case["ids"]) :]


def test_what_is_left_of_a_payload_keeps_its_ids() -> None:
    events = numbered(9)
    first = [event.id for event in drive([jdat(NONCE, events)]).events]
    assert len(set(first)) == 9
    for acknowledged in range(10):
        again = [event.id for event in drive([evnt(NONCE, events[acknowledged:], level=9)]).events]
        assert again == first[acknowledged:]
