"""Texts that fluentd sends as bin: in_tail and in_syslog mark every string as binary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.forward.driving import drive, event_time, every_way, pack

CAPTURES = Path(__file__).parent / "vectors" / "fluentd-bin"
NGINX = {
    "remote": "127.0.0.1", "host": "-", "user": "-", "method": "GET", "path": "/index.html", "code": "200", "size": "612",
    "referer": "-", "agent": "curl/8.0", "http_x_forwarded_for": "-",
}  # fmt: skip
CAPTURED: dict[str, tuple[dict[str, Any], bool]] = {
    "nginx": (NGINX, True),
    "nginxutf8": (NGINX, False),
    "syslog": ({"host": "web", "ident": "app", "pid": "12", "message": "hello syslog"}, True),
    "utf8": ({"message": "k:väl\ttime:x"}, False),
    "json": ({"a": "text", "b": 1, "ü": "ünï"}, False),
}


@pytest.mark.parametrize("name", CAPTURED)
def test_what_fluentd_sends_can_be_read(name: str) -> None:
    record, binary = CAPTURED[name]
    (event,) = every_way((CAPTURES / f"fluentd-1.19.0-{name}.bin").read_bytes()).events
    assert event.record == record
    assert event.attributes.get("bin") == ([f"/{key}" for key in record] if binary else None)


def sent(*records: Any, **limits: Any) -> Any:
    entries = b"".join(pack([event_time(1_700_000_000, 5), record]) for record in records)
    return drive([pack(["t", entries, {"chunk": "c"}])], **limits)


RECORDS = {
    "flat": ({"a": b"x", "b": "y", "c": 5}, {"a": "x", "b": "y", "c": 5}, ["/a"]),
    "nested": ({"a": {"b/~": [b"x", "y", b"z"]}}, {"a": {"b/~": ["x", "y", "z"]}}, ["/a/b~1~0/0", "/a/b~1~0/2"]),
    "in a map": ({"m": {"a": b"x", "b": "y"}, "c": b"z"}, {"m": {"a": "x", "b": "y"}, "c": "z"}, ["/m/a", "/c"]),
    "another in it": ({"m": {"a": "x", "b": b"y"}, "c": b"z"}, {"m": {"a": "x", "b": "y"}, "c": "z"}, ["/m/b", "/c"]),
    "another key": ({"m": {"a": b"x", "d": "y"}, "c": b"z"}, {"m": {"a": "x", "d": "y"}, "c": "z"}, ["/m/a", "/c"]),
    "two maps": ({"m": {"a": b"x"}, "c": {"b": "y"}}, {"m": {"a": "x"}, "c": {"b": "y"}}, ["/m/a"]),
    "in the other": ({"m": {"a": "x"}, "c": {"b": b"y"}}, {"m": {"a": "x"}, "c": {"b": "y"}}, ["/c/b"]),
    "empty": ({"a": b""}, {"a": ""}, ["/a"]),
    "not UTF-8": ({"a": b"\xff"}, {"a": {"$bin": "/w=="}}, None),
    "both": ({"a": b"\xff", "b": b"ok"}, {"a": {"$bin": "/w=="}, "b": "ok"}, ["/b"]),
    "with an ext": ({"a": b"x", "t": event_time(1, 2)}, {"a": "x", "t": "1970-01-01T00:00:01.000000002Z"}, ["/a"]),
    "none": ({"a": "x"}, {"a": "x"}, None),
}


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("before", RECORDS)
def test_bins_that_are_texts_become_texts_and_the_event_says_where(before: str, name: str) -> None:
    """Whatever record comes before: notes are made once for records of the same keys and types."""
    outcome = sent(*(RECORDS[each][0] for each in (before, name, before, name)))
    for event, each in zip(outcome.events, (before, name, before, name), strict=True):
        assert (event.record, event.attributes.get("bin")) == RECORDS[each][1:]
        assert event.attributes["chunk"] == "c"


def test_an_option_keeps_its_bins() -> None:
    (reject,) = drive([pack(["t", 1, "no record", {"chunk": b"c", "more": b"x"}])]).rejects
    assert b'"more":{"$bin":"eA=="}' in reject.attributes
