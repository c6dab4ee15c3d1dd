"""What log-courier 2.12.0 really sent, and what its own receiver answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headrace_common.session.client import Remark
from headrace_courier.client import Acknowledged, CourierReplies

from tests.courier.driving import Outcome, every_way

VECTORS = Path(__file__).parent / "vectors"


def recorded(direction: str) -> tuple[bytes, list[dict[str, Any]]]:
    name = f"courier_evnt.c1.{direction}"
    return (VECTORS / f"{name}.bin").read_bytes(), json.loads((VECTORS / f"{name}.json").read_text())


def spoken() -> Outcome:
    data, _ = recorded("c2s")
    return every_way(data)


def test_the_capture_decodes_as_it_was_meant() -> None:
    _, meant = recorded("c2s")
    (payload,) = [message for message in meant if message["type"] == "EVNT"]
    outcome = spoken()
    assert outcome.error is None
    assert [event.json for event in outcome.events] == payload["events"]
    assert [event.time for event in outcome.events] == [event["@timestamp"] for event in payload["events"]]
    assert {event.headers["ce_subject"] for event in outcome.events} == {b"demo"}
    assert {event.headers["ce_source"] for event in outcome.events} == {b"/courier/vm"}
    assert {event.headers["ce_type"] for event in outcome.events} == {b"headrace.courier.event"}
    assert [event.attributes for event in outcome.events] == [{"nonce": payload["nonce"]}] * 7
    assert not outcome.partial


def test_our_replies_mean_what_the_recorded_ones_do() -> None:
    data, meant = recorded("s2c")
    theirs = CourierReplies().receive(data)
    assert [message["type"] for message in meant] == ["VERS", "ACKN", "PONG"]
    vers, ackn, pong = theirs
    assert ackn == Acknowledged(bytes.fromhex(meant[1]["nonce"]), meant[1]["seq"])
    ours = spoken()
    assert ours.acknowledged == [(ackn.nonce, ackn.count)]
    assert ours.others == [vers, pong] == [Remark("VERS"), Remark("PONG")]
