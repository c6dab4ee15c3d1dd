from __future__ import annotations

from pathlib import Path

import pytest
from headrace_cli.verbs.console import Reporter, parse_line


@pytest.mark.parametrize("kind", ["good", "bad", "note"])
def test_what_the_reporter_writes_can_be_read_back(tmp_path: Path, kind: str) -> None:
    log = tmp_path / "supervisor.log"
    Reporter(log)("lake", kind, "not ready: no answer: yet")
    assert parse_line(log.read_text().rstrip("\n")) == ("lake", kind, "not ready: no answer: yet")


@pytest.mark.parametrize("row", ["", "Traceback (most recent call last):", "2026 words", "headrace: no: way"])
def test_another_line_is_none_of_its(row: str) -> None:
    assert parse_line(row) is None
