"""How a verb ends: by Ctrl-C, and where what it says cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from headrace_cli.ground import module, run
from headrace_common.operations.errors import EXIT_INTERRUPTED, EXIT_UNWRITTEN

HELP = (*module("headrace_cli"), "check-loss", "--help")


def interrupted() -> None:
    raise KeyboardInterrupt


def interrupted_in_duckdb() -> None:
    raise RuntimeError("Query interrupted")


def failed_while_interrupted() -> None:
    try:
        interrupted()
    finally:
        raise ValueError("a connection that is busy")


def left_by_a_reader() -> None:
    try:
        raise BrokenPipeError
    except BrokenPipeError:
        sys.exit(1)  # as rich and typer do


@pytest.mark.parametrize(
    ("verb", "status"),
    [
        (interrupted, EXIT_INTERRUPTED),
        (interrupted_in_duckdb, EXIT_INTERRUPTED),
        (failed_while_interrupted, EXIT_INTERRUPTED),
        (left_by_a_reader, EXIT_UNWRITTEN),
        (lambda: sys.exit(1), 1),
    ],
)
def test_the_status_says_what_ended_a_verb(
    verb: Callable[[], None], status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def verbs(**_: Any) -> None:
        verb()

    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        with pytest.raises(SystemExit) as end:
            run(verbs)
    assert end.value.code == status


def test_a_fault_of_ours_is_shown() -> None:
    def verbs(**_: Any) -> None:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        run(verbs)


def test_a_full_disk_is_no_finding() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(HELP, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (EXIT_UNWRITTEN, 1)


def test_a_pipe_that_nobody_reads_is_no_finding() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(HELP, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (EXIT_UNWRITTEN, "")


def test_closed_streams_are_no_fault() -> None:
    done = subprocess.run(["bash", "-c", '"$@" <&- >&- 2>&-', "verb", *HELP], check=False)
    assert done.returncode == 0


SCRIPT = (
    "import headrace_cli.__main__ as line; from headrace_cli import console; "
    "line.app = lambda **_: exit(console.line('lake', 'good', 'there')); line.main()"
)


def test_a_file_is_utf_8_in_any_locale() -> None:
    told = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace("there", "\\u2713 \\udcff")],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        check=True,
    ).stdout
    assert "\u2713 \\udcff" in told.decode()


def test_no_verb_begins_in_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, begun = tmp_path / "gone", list[object]()
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(SystemExit) as ended:
        run(lambda **given: begun.append(given))
    assert (ended.value.code, begun) == (1, [])
