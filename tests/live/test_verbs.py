"""`headrace live`: the verb of a package of its own, which the command line runs in its place."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer
from headrace_cli.__main__ import app as command_line
from headrace_cli.__main__ import verb
from headrace_cli.ground import CommandError
from headrace_live.__main__ import app
from typer.testing import CliRunner


def test_it_takes_the_place_of_the_command_line_with_all_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Sequence[str]] = []
    monkeypatch.setattr(os, "execve", lambda program, command, _: ran.append([program, *command]))
    words = ["--url", "a=dns://b:1", "-h", "--port=1", "--help"]
    CliRunner().invoke(command_line, ["live", *words])
    assert ran == [[sys.executable, sys.executable, "-P", "-m", "headrace_live", "live", *words]]
    assert typer.main.get_group(app).commands["live"].help == verb("live").help


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("live --url x=http://127.0.0.1:1 --lake ftp://x/y", 2, "a URL of s3://"),
        ("live --url a=dns://x", 2, "NAME=dns://HOST:PORT"),
        ("live --url http://x:1", 2, "expected NAME=http://HOST:PORT"),
    ],
)
def test_wrong_input_is_one_sentence(
    command: str, status: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "none"))
    result = CliRunner().invoke(app, shlex.split(command))
    assert isinstance(result.exception, CommandError), result.output
    assert (result.exception.status, "\n" in str(result.exception)) == (status, False)
    assert said in str(result.exception)
    assert not (tmp_path / "none").exists()
