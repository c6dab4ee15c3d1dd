"""Event ids: the rule of the design, computed apart, and what a resend changes."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from headrace_courier.wire import evnt, jdat

from tests.courier.driving import NONCE, drive, every_way, numbered
from tests.ids import hashed

TWENTY = json.loads((Path(__file__).parent / "ids.json").read_text())


def by_the_rule(nonce: bytes, left: int, event: bytes) -> str:
    return "d." + hashed(b"courier", nonce, struct.pack(">I", left), event)


@pytest.mark.parametrize("case", TWENTY, ids=[case["name"] for case in TWENTY])
def test_the_twenty_that_are_written_down(case: dict[str, Any]) -> None:
    nonce, events = bytes.fromhex(case["nonce"]), [bytes.fromhex(event) for event in case["events"]]
    expected = [by_the_rule(nonce, len(events) - index, event) for index, event in enumerate(events)]
    assert case["ids"] == expected
    for make in (jdat, evnt):
        found = every_way(make(nonce, events)).flat
        assert [part.id if isinstance(part.id, str) else part.id.decode() for part in found] == expected


def test_what_is_left_of_a_payload_keeps_its_ids() -> None:
    events = numbered(9)
    first = [event.id for event in drive([jdat(NONCE, events)]).events]
    assert len(set(first)) == 9
    for acknowledged in range(10):
        again = [event.id for event in drive([evnt(NONCE, events[acknowledged:], level=9)]).events]
        assert again == first[acknowledged:]
