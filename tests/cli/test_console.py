from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from headrace_cli.verbs.console import Reporter, parse_line


@pytest.mark.parametrize("kind", ["good", "bad", "note"])
def test_what_the_reporter_writes_can_be_read_back(tmp_path: Path, kind: str) -> None:
    log = tmp_path / "supervisor.log"
    Reporter(log)("lake", kind, "not ready: no answer: yet")
    assert parse_line(log.read_text().rstrip("\n")) == ("lake", kind, "not ready: no answer: yet")


SCRIPT = (
    "import headrace_cli.__main__ as line; from headrace_cli.verbs import console; "
    "line.app = lambda **_: exit(console.line('lake', 'good', 'there')); line.main()"
)


def test_a_terminal_need_not_know_the_marks() -> None:
    screen, shown = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-c", SCRIPT], stdout=shown, env={**os.environ, "PYTHONIOENCODING": "latin-1"}, check=True
        )
        assert b"\\u2713" in os.read(screen, 1000)
    finally:
        os.close(screen)
        os.close(shown)


@pytest.mark.parametrize("row", ["", "Traceback (most recent call last):", "2026 words", "headrace: no: way"])
def test_another_line_is_none_of_its(row: str) -> None:
    assert parse_line(row) is None
