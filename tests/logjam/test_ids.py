"""Event ids: the rule of the design, computed apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from headrace_common.record.event import Reject, event_id
from headrace_common.record.steps import finish
from headrace_logjam.devices.subscription import SubscriptionMaker, read_published
from headrace_logjam.events import Limits
from headrace_logjam.wire import BodyLimits

from tests.driving import NOW_MS
from tests.ids import hashed
from tests.logjam.driving import asking, drive, event

TWENTY = json.loads((Path(__file__).parent / "ids.json").read_text())


def by_the_rule(*fields: bytes) -> str:
    return "d." + hashed(b"logjam", *fields)


@pytest.mark.parametrize("case", TWENTY, ids=[case["name"] for case in TWENTY])
@pytest.mark.parametrize("sequence", [0, 9])
def test_the_twenty_that_are_written_down(case: dict[str, Any], sequence: int) -> None:
    app_env, topic, body = (case[name].encode() for name in ("app_env", "topic", "body"))
    assert case["id"] == by_the_rule(app_env, topic, body)
    message = event(body, case["method"], app_env=app_env, topic=topic, sequence=sequence, created_ms=sequence)
    for sent in (message, asking(message)):
        (part,) = drive(sent).flat
        assert part.id == case["id"]


PUBLISHED = json.loads((Path(__file__).parent / "sub_ids.json").read_text())


def frames_of(case: dict[str, Any]) -> list[bytes]:
    if "vector" in case:
        case = json.loads((Path(__file__).parent / "vectors" / case["vector"]).read_text())[case["index"]]
    return [bytes.fromhex(frame) for frame in case["frames_hex"]]


@pytest.mark.parametrize("case", PUBLISHED, ids=[case["name"] for case in PUBLISHED])
def test_the_twenty_of_devices_that_are_written_down(case: dict[str, Any]) -> None:
    """Over the four frames as they came, so any consumer of any endpoint makes the same."""
    frames = frames_of(case)
    assert case["id"] == by_the_rule(*frames)
    limits = Limits(BodyLimits(1 << 20, 1 << 20, 1000), 64)
    for endpoint, consumer in (("one", "a"), ("two", "b")):
        part = finish(SubscriptionMaker(endpoint, consumer, limits).make(read_published(frames), NOW_MS))
        assert not isinstance(part, Reject)
        assert event_id(part).decode() == case["id"]
