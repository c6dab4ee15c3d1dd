"""What a real logjam-device sent, in all four methods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from headrace_common.record.contract import Reason
from headrace_common.record.event import Reject
from headrace_logjam.wire import METHODS, decode_meta, encode_meta, inflate

from tests.driving import finish
from tests.logjam.driving import asking, drive

FOLDER = Path(__file__).parent / "vectors"
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
        assert finish(inflate(meta.compression, body, 1 << 20)).decode() == message["body"]


@pytest.mark.parametrize(("name", "index", "message"), CASES, ids=NAMES)
def test_a_producer_that_sent_them_has_its_events(name: str, index: int, message: dict[str, Any]) -> None:
    found = drive(asking(frames(message)))
    (part,) = found.flat
    if isinstance(part, Reject):
        assert part.reason in (Reason.BAD_MESSAGE, Reason.COMPRESSION, Reason.BAD_JSON)
        return
    assert part.subject == f"{message['app_env']}/{message['topic']}"
    assert part.value.decode() == message["body"]
