"""Texts that fluentd sends as bin: in_tail and in_syslog mark every string as binary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.forward.driving import every_way

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
