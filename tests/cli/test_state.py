"""Whose a state folder is, and whom `down` may signal."""

from __future__ import annotations

import fcntl
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from headrace_cli.__main__ import app
from headrace_cli.ground import CommandError
from headrace_cli.stack.stack import ACCEPT, lake_environment
from headrace_cli.stack.state import StateFolder
from headrace_cli.verbs import down as stopping
from headrace_cli.verbs import up as starting
from headrace_lake.kafka import gaps
from typer.testing import CliRunner

from tests.cli.standin import headrace
from tests.contract.waiting import there


@pytest.mark.parametrize("written", ["", "-1", "0", "1", "true", "[]", str(10**12), "9" * 5000])
def test_down_signals_nobody_but_the_supervisor(tmp_path: Path, written: str) -> None:
    state = StateFolder(tmp_path / "state")
    state.make()
    with (state.path / "lock").open("w") as lock:
        lock.write(written)
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(CommandError, match="nothing was stopped"):
            stopping.down(state.path)


def test_who_takes_the_lock_is_the_supervisor(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "state")
    mask = os.umask(0o022)
    state.make()
    os.umask(mask)
    assert state.path.stat().st_mode & 0o777 == 0o700, "it is for its user alone"
    (state.path / "lock").write_text("999999999999")
    with state.held():
        assert there(state.supervisor()).pid == os.getpid()
        with pytest.raises(CommandError, match="already runs"), state.held():
            pass
    assert not state.running()


@pytest.mark.parametrize(
    ("name", "part"),
    [("a[b", r"\["), ("st*r", r"\*"), ("a%20b", "%20"), ("it`s", "`"), ("a\\b", r"\\"), ("a\nb", r"'\\n'")],
)
def test_a_name_that_no_reader_of_the_lake_takes_is_refused_before_anything_is_made(
    tmp_path: Path, name: str, part: str
) -> None:
    with pytest.raises(CommandError, match=f"(?s)No reader could open the lake in .*whose path has no {part}"):
        StateFolder(tmp_path / name).make()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["file", "file/below", "loop", "n" * 300])
@pytest.mark.parametrize("verb", ["down", "tap"])
def test_what_can_be_no_folder_is_said_by_each_verb(tmp_path: Path, name: str, verb: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    told = CliRunner().invoke(app, [verb, "--state", str(tmp_path / name)])
    assert isinstance(told.exception, CommandError)


@pytest.mark.parametrize(
    ("verb", "said"), [(("down", "--purge"), "not a state folder"), (("up", "--any-port"), "is not empty")]
)
def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path, verb: tuple[str, str], said: str) -> None:
    (tmp_path / "precious").write_text("x")
    done = headrace(*verb, "--state", str(tmp_path))
    assert done.returncode == 1
    assert said in done.stderr
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("precious", "x")]


@pytest.mark.parametrize("text", ["", '{"serv', "[]"])
def test_a_record_that_cannot_be_read_is_that_of_a_start(tmp_path: Path, text: str) -> None:
    state = StateFolder(tmp_path / "state")
    state.make()
    state.record.write_text(text)
    with state.held():
        assert state.what_runs() == {}
        assert "is starting" in CliRunner().invoke(app, ["status", "--state", str(state.path)]).output


@pytest.mark.parametrize(("name", "own"), [("a b", True), ("a,b", False)])
def test_sparks_scratch_is_in_the_folder_unless_spark_splits_its_name(tmp_path: Path, name: str, own: bool) -> None:
    found = lake_environment(StateFolder(tmp_path / name), {}, tmp_path)
    assert ("TMPDIR" in found) is own
    assert found["LC_ALL"] == "C.UTF-8", "Java reads names of files as UTF-8, whatever the locale is"


def test_a_detached_stack_has_the_options_of_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(f"up --host 0.0.0.0 -d --services forward,courier --accept-loss --state {tmp_path}")
    given: list[Sequence[str]] = []

    def start(state: StateFolder, options: Sequence[str]) -> dict[str, Any]:
        given.append(options)
        return {"parts": {}, "services": {}}

    monkeypatch.setattr(starting, "start", start)
    monkeypatch.setattr(sys, "argv", ["headrace", *words])
    CliRunner().invoke(app, words)
    assert given == [[word for word in words[1:] if word != "-d"]]
    assert ACCEPT == gaps.ACCEPT
