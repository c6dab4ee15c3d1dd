"""The table of `status` in a terminal of 80 columns."""

from __future__ import annotations

import io

import pytest
from headrace_cli.verbs import console, status
from rich.console import Console


def test_an_address_is_whole_on_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    child = {"state": "ready", "pid": 26343, "restarts": 0}
    record = {
        "kafka": "127.0.0.1:9092",
        "kafka_child": child,
        "kafka_problem": None,
        "services": {"lumberjack": {**child, "listeners": {"listen": "127.0.0.1:5044"}, "ops": "127.0.0.1:8081"}},
        "lake": "/lake",
        "lake_child": child,
        "lake_ops": "127.0.0.1:8086",
        "live": "http://127.0.0.1:8080/",
        "live_child": child,
        "supervisor_pid": 1,
        "state": "/state",
    }
    shown = io.StringIO()
    monkeypatch.setattr(console, "OUT", Console(file=shown, width=80, soft_wrap=True))
    status._table(record)
    lines = shown.getvalue().splitlines()
    for address in ("127.0.0.1:5044", "http://127.0.0.1:8081/", "http://127.0.0.1:8086/", "http://127.0.0.1:8080/"):
        assert sum(address in line for line in lines) == 1, lines
