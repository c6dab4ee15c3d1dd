"""Texts that fluentd sends as bin: in_tail and in_syslog mark every string as binary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.forward.driving import event_time, every_way, pack

CAPTURES = Path(__file__).parent / "vectors" / "fluentd-bin"
NGINX = {
    "remote": "127.0.0.1", "host": "-", "user": "-", "method": "GET", "path": "/index.html", "code": "200", "size": "612",
    "referer": "-", "agent": "curl/8.0", "http_x_forwarded_for": "-",
}  # fmt: skip
CAPTURED: dict[str, dict[str, Any]] = {
    "nginx": NGINX,
    "nginxutf8": NGINX,
    "syslog": {"host": "web", "ident": "app", "pid": "12", "message": "hello syslog"},
    "utf8": {"message": "k:väl\ttime:x"},
    "json": {"a": "text", "b": 1, "ü": "ünï"},
}


@pytest.mark.parametrize("name", CAPTURED)
def test_what_fluentd_sends_can_be_read(name: str) -> None:
    (event,) = every_way((CAPTURES / f"fluentd-1.19.0-{name}.bin").read_bytes()).events
    assert event.record == CAPTURED[name]
    assert "notes" not in event.attributes


def test_bins_that_are_texts_become_texts() -> None:
    record = {"a": b"x", "m": {"b/~": [b"y", "z", b"\xff"]}, "empty": b"", "t": event_time(1, 2)}
    (event,) = every_way(pack(["t", [[event_time(1_700_000_000, 5), record]], {"chunk": "c"}])).events
    assert event.record == {
        "a": "x",
        "m": {"b/~": ["y", "z", {"$bin": "/w=="}]},
        "empty": "",
        "t": "1970-01-01T00:00:01.000000002Z",
    }
    assert event.attributes == {"chunk": "c"}
