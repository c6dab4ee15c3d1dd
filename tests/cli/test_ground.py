"""How a verb ends: by Ctrl-C, and where what it says cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from inspect import isfunction
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from headrace_cli.ground import module, run
from headrace_common.operations.errors import EXIT_INTERRUPTED, EXIT_UNWRITTEN

HELP = (*module("headrace_cli"), "check-loss", "--help")


def failed_while_interrupted() -> None:
    try:
        raise KeyboardInterrupt
    finally:
        raise ValueError("a connection that is busy")


def left_by_a_reader() -> None:
    try:
        raise BrokenPipeError
    except BrokenPipeError:
        sys.exit(1)  # as rich and typer do


@pytest.mark.parametrize(
    ("verb", "ends", "status"),
    [
        (KeyboardInterrupt, SystemExit, EXIT_INTERRUPTED),
        (RuntimeError("Query interrupted"), SystemExit, EXIT_INTERRUPTED),  # DuckDB's
        (failed_while_interrupted, SystemExit, EXIT_INTERRUPTED),
        (left_by_a_reader, SystemExit, EXIT_UNWRITTEN),
        (SystemExit(1), SystemExit, 1),
        (ValueError("a bug"), ValueError, None),  # a fault of ours is shown
    ],
)
def test_the_status_says_what_ended_a_verb(
    verb: Any, ends: type[BaseException], status: int | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        with pytest.raises(ends) as end:
            run(Mock(side_effect=(lambda **_: verb()) if isfunction(verb) else verb))
    assert getattr(end.value, "code", None) == status


def test_what_cannot_be_written_is_no_finding() -> None:
    reader, pipe = os.pipe()
    os.close(reader)
    with Path("/dev/full").open("w") as full:
        for out, said in ((full, 1), (pipe, 0)):
            done = subprocess.run(HELP, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
            assert (done.returncode, done.stderr.count("\n")) == (EXIT_UNWRITTEN, said)
    os.close(pipe)
    closed = subprocess.run(["bash", "-c", '"$@" <&- >&- 2>&-', "verb", *HELP], check=False)
    assert closed.returncode == 0, "closed streams are no fault"


SCRIPT = (
    "import headrace_cli.__main__ as line; from headrace_cli import console; "
    "line.app = lambda **_: exit(console.line('lake', 'good', '\\u2713 \\udcff')); line.main()"
)


def test_a_file_is_utf_8_in_any_locale() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    told = subprocess.run([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, env=environment, check=True).stdout
    assert "\u2713 \\udcff" in told.decode()
