"""What a real logjam-device sent, in all four methods; and the ids of events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from headrace_common.record.contract import Reason
from headrace_common.record.encoding import decode
from headrace_common.record.event import Reject
from headrace_common.record.json_object import finish
from headrace_common.session.inflate import InflateLimits
from headrace_logjam.devices.consumer import SubscriptionMaker
from headrace_logjam.settings import LogjamLimits
from headrace_logjam.wire import METHODS, decode_meta, encode_meta, inflate, read_published

from tests.driving import NOW_MS
from tests.ids import hashed
from tests.logjam.driving import asking, drive, event

FOLDER = Path(__file__).parent / "vectors"
LIMITS = LogjamLimits()
CASES = [
    (path.stem, index, message)
    for path in sorted(FOLDER.glob("*.json"))
    for index, message in enumerate(json.loads(path.read_text()))
]
NAMES = [f"{name}-{index}" for name, index, _ in CASES]


def frames(message: dict[str, Any]) -> list[bytes]:
    return [bytes.fromhex(frame) for frame in message["frames_hex"]]


def test_all_methods_are_there() -> None:
    assert {message["meta"]["comp"] for _, _, message in CASES} >= set(range(len(METHODS)))


@pytest.mark.parametrize(("name", "index", "message"), CASES, ids=NAMES)
def test_frames_say_what_is_written_beside_them(name: str, index: int, message: dict[str, Any]) -> None:
    app_env, topic, body, last = frames(message)
    meta = decode_meta(last)
    said = message["meta"]
    assert (app_env.decode(), topic.decode()) == (message["app_env"], message["topic"])
    assert tuple(meta) == (said["comp"], said["dev"], said["ms"], said["seq"])
    assert encode_meta(meta, tag=said["tag"]) == last
    if meta.compression < len(METHODS) and message.get("body") is not None:
        assert finish(inflate(meta.compression, body, InflateLimits(1 << 20, 1000))).decode() == message["body"]


@pytest.mark.parametrize(("name", "index", "message"), CASES, ids=NAMES)
def test_a_producer_that_sent_them_has_its_events(name: str, index: int, message: dict[str, Any]) -> None:
    found = drive(asking(frames(message)))
    (part,) = found.flat
    if isinstance(part, Reject):
        assert part.reason in (Reason.BAD_MESSAGE, Reason.COMPRESSION, Reason.BAD_JSON)
        return
    assert part.subject == f"{message['app_env']}/{message['topic']}"
    assert part.value.decode() == message["body"]


# Event ids: the rule of the design, computed apart

TWENTY = json.loads((FOLDER.parent / "ids.json").read_text())


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


PUBLISHED = json.loads((FOLDER.parent / "sub_ids.json").read_text())


def frames_of(case: dict[str, Any]) -> list[bytes]:
    if "vector" in case:
        case = json.loads((FOLDER / case["vector"]).read_text())[case["index"]]
    return frames(case)


@pytest.mark.parametrize("case", PUBLISHED, ids=[case["name"] for case in PUBLISHED])
def test_the_twenty_of_devices_that_are_written_down(case: dict[str, Any]) -> None:
    """Over the four frames as they came, so any consumer of any endpoint makes the same of a device with a number."""
    sent = frames_of(case)
    assert case["id"] == by_the_rule(*sent)
    for endpoint, consumer in (("one", "a"), ("two", "b")):
        part = finish(SubscriptionMaker(endpoint, consumer, LIMITS).make(read_published(sent, endpoint), NOW_MS))
        assert not isinstance(part, Reject)
        assert dict(decode(part)[1])["ce_id"].decode() == case["id"]
