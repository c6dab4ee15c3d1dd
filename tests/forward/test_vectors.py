"""Bytes captured from real clients decode to what their JSON says, whole and split anywhere."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgpack
import orjson
import pytest

from tests.driving import Seen
from tests.forward.driving import NOW_MS, Outcome, ack, drive, every_way, one_by_one

VECTORS = Path(__file__).parent / "vectors"
CAPTURES = sorted(path.stem for path in VECTORS.glob("*.bin"))
HANDSHAKE = "flb-auth.0"


def messages(name: str) -> list[dict[str, Any]]:
    return [item for item in orjson.loads((VECTORS / f"{name}.json").read_bytes()) if "mode" in item]


def as_json(value: Any) -> Any:
    """A value of a capture's JSON in the form that our records have."""
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"$bin"}:
        return {"$bin": base64.b64encode(bytes.fromhex(value["$bin"])).decode()}
    if value.keys() == {"$time"}:
        return text(value)
    return {key: as_json(item) for key, item in value.items()}


def text(time: Any) -> str:
    if isinstance(time, int):
        return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    seconds, nanoseconds = time["$time"]
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{nanoseconds:09d}Z"


def check(outcome: Outcome, expected: list[dict[str, Any]]) -> None:
    """Every tag, time, metadata and record value, in order, and an acknowledgement for each chunk."""
    assert outcome.error is None
    assert outcome.rejects == []
    assert len(outcome.parts) == len(expected)
    for frame, sent in zip(outcome.parts, expected, strict=True):
        assert len(frame) == len(sent["events"])
        chunk = (sent["option"] or {}).get("chunk")
        for event, (time, record) in zip(frame, sent["events"], strict=True):
            metadata: dict[str, Any] = {}
            if isinstance(time, list):
                time, metadata = time
            assert isinstance(event, Seen)
            assert event.subject == sent["tag"]
            assert event.time == text(time)
            assert event.json == as_json(record)
            assert event.attributes.get("metadata", {}) == as_json(metadata)
            assert event.attributes.get("chunk") == chunk
            assert event.attributes.keys() <= {"metadata", "chunk"}
            assert event.headers["ce_source"] == b"/forward/192.0.2.7"
            assert event.headers["ce_type"] == b"headrace.forward.event"
            assert event.headers["content-type"] == b"application/json"
            assert event.id.startswith("u." if chunk is None else ("d.", "u."))
    chunks = [option["chunk"] for sent in expected if (option := sent["option"]) and "chunk" in option]
    assert outcome.replies == [ack(chunk) for chunk in chunks]
    assert outcome.unacknowledgeable == (len(chunks) < len(expected))
    assert not outcome.partial


NGINX = {
    "remote": "127.0.0.1", "host": "-", "user": "-", "method": "GET", "path": "/index.html", "code": "200", "size": "612",
    "referer": "-", "agent": "curl/8.0", "http_x_forwarded_for": "-",
}  # fmt: skip
BINS: dict[str, dict[str, Any]] = {
    "nginx": NGINX,
    "nginxutf8": NGINX,
    "syslog": {"host": "web", "ident": "app", "pid": "12", "message": "hello syslog"},
    "utf8": {"message": "k:väl\ttime:x"},
    "json": {"a": "text", "b": 1, "ü": "ünï"},
}


@pytest.mark.parametrize("name", BINS)
def test_texts_that_fluentd_sends_as_bin_can_be_read(name: str) -> None:
    """in_tail and in_syslog mark every string as binary."""
    (event,) = every_way((VECTORS / "fluentd-bin" / f"fluentd-1.19.0-{name}.bin").read_bytes()).events
    assert event.json == BINS[name]
    assert "notes" not in event.attributes


def test_there_is_a_json_for_every_capture() -> None:
    index = orjson.loads((VECTORS / "INDEX.json").read_bytes())
    assert sorted(index) == [f"{name}.bin" for name in CAPTURES]
    assert len(CAPTURES) >= 24
    assert all(messages(name) for name in CAPTURES)


@pytest.mark.parametrize("name", [name for name in CAPTURES if name != HANDSHAKE])
def test_a_capture_is_what_its_json_says(name: str) -> None:
    check(every_way((VECTORS / f"{name}.bin").read_bytes()), messages(name))


def test_the_events_behind_a_handshake_are_what_their_json_says() -> None:
    data = (VECTORS / f"{HANDSHAKE}.bin").read_bytes()
    unpacker = msgpack.Unpacker(raw=True)
    unpacker.feed(data)
    assert unpacker.unpack()[0] == b"PING"
    check(every_way(data[unpacker.tell() :]), messages(HANDSHAKE))


def test_a_login_without_a_handshake_closes() -> None:
    """Published, it would put a login's digests on a topic, and its client would wait for a PONG for ever."""
    outcome = every_way((VECTORS / f"{HANDSHAKE}.bin").read_bytes())
    assert outcome.parts == []
    assert outcome.replies == []
    assert outcome.error is not None
    assert "handshake" in str(outcome.error)
    assert outcome.error.offset == 0


@pytest.mark.parametrize("name", ["flb-drop1", "go-drop"])
def test_what_a_client_sends_again_has_the_same_ids(name: str) -> None:
    now_ms = NOW_MS
    if name == "go-drop":  # its chunk begins with the time of sending, and only near that it counts as one
        chunk = messages("go-drop.0")[0]["option"]["chunk"]
        now_ms = int.from_bytes(base64.b64decode(chunk)[:8], "little") * 1000 + 60_000
    first, again = (drive([(VECTORS / f"{name}.{index}.bin").read_bytes()], now_ms=now_ms) for index in (0, 1))
    before = {(event.id, event.value) for event in first.events}
    assert before
    assert before <= {(event.id, event.value) for event in again.events}
    assert all(event_id.startswith("d.") for event_id, _ in before)


def test_an_event_with_a_time_has_no_receive_time() -> None:
    """So that a record which is sent again differs in nothing but Kafka's own timestamp."""
    data = (VECTORS / "flb-ack.1.bin").read_bytes()
    first, second = (drive(one_by_one(data), now_ms=NOW_MS + late) for late in (0, 86_400_000))
    assert first.events == second.events
