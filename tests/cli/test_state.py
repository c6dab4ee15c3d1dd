"""Whose a state folder is, and whom `down` may signal."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from headrace_cli.__main__ import app
from headrace_cli.ground import CommandError
from headrace_cli.machine import filelock as identity
from headrace_cli.stack.stack import ACCEPT, StackOptions, _lake_command, lake_environment
from headrace_cli.stack.state import StateFolder
from headrace_cli.verbs import running as module
from headrace_cli.verbs import up as starting
from headrace_cli.verbs.running import down
from headrace_lake.kafka import gaps
from typer.testing import CliRunner

from tests.contract.waiting import there


@pytest.fixture
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def changed(**values: Any) -> Callable[[int], Any]:
    return lambda pid: {**identity.describe(pid), **values}


WRITTEN: dict[str, Callable[[int], Any]] = {
    "a number": lambda pid: pid,
    "-1": lambda pid: -1,
    "no start time": lambda pid: {"pid": pid},
    "a list": lambda pid: [],
    "pid -1": changed(pid=-1),
    "pid 0": changed(pid=0),
    "pid 1": changed(pid=1),
    "a truth value": changed(pid=True),
    "a text": changed(pid=str(os.getpid())),
    "no such pid": changed(pid=10**12),
    "another start time": changed(started="1"),
    "another command": changed(command=["headrace"]),
}


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_down_signals_nobody_but_the_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sleeping: subprocess.Popen[bytes], written: Callable[[int], Any]
) -> None:
    monkeypatch.setattr(module, "KNOWN_SECONDS", 0.0)
    state = StateFolder(tmp_path / "state")
    state.make()
    with (state.path / "lock").open("w") as lock:
        json.dump(written(sleeping.pid), lock)
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(CommandError, match="nothing was stopped"):
            down(state.path)
    assert sleeping.poll() is None


def test_a_process_is_found_by_what_was_written_of_it(
    monkeypatch: pytest.MonkeyPatch, sleeping: subprocess.Popen[bytes]
) -> None:
    described = json.loads(json.dumps(identity.describe(sleeping.pid)))
    found = there(identity.find(described))
    assert found.pid == sleeping.pid
    with monkeypatch.context() as another:
        another.setattr(os, "getuid", lambda: 12_345)
        assert identity.find(described) is None
    sleeping.kill()
    sleeping.wait()
    assert identity.find(described) is None


def test_who_takes_the_lock_is_the_supervisor(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "state")
    state.make()
    lock = state.lock()
    supervisor = there(state.supervisor())
    assert supervisor.pid == os.getpid()
    os.close(lock)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("a[b", r"\["),
        ("st*r", r"\*"),
        ("a%20b", "%20"),
        ("it`s", "`"),
        ("a\\b", r"\\"),
        ("a\nb", r"'\\n'"),
        ("a\udcffb", r"'\\udcff'"),
    ],
)
def test_a_name_that_no_reader_of_the_lake_takes_is_refused_before_anything_is_made(
    tmp_path: Path, name: str, part: str
) -> None:
    with pytest.raises(CommandError, match=f"(?s)No reader could open the lake in .*whose path has no {part}"):
        StateFolder(tmp_path / name).make()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["file", "file/below", "loop", "n" * 300])
@pytest.mark.parametrize("verb", ["status", "down", "tap"])
def test_what_can_be_no_folder_is_said_by_each_verb(tmp_path: Path, name: str, verb: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    told = CliRunner().invoke(app, [verb, "--state", str(tmp_path / name)])
    assert isinstance(told.exception, CommandError)


def test_a_new_folder_is_for_its_user_alone(tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        state = StateFolder(tmp_path / "state")
        state.make()
        assert state.path.stat().st_mode & 0o777 == 0o700
        assert not state.is_open()
        state.path.chmod(0o750)
        assert state.is_open()
    finally:
        os.umask(mask)


@pytest.mark.parametrize(("name", "own"), [("a b", True), ("a,b", False)])
def test_sparks_scratch_is_in_the_folder_unless_spark_splits_its_name(tmp_path: Path, name: str, own: bool) -> None:
    found = lake_environment(StateFolder(tmp_path / name), {}, tmp_path)
    assert ("TMPDIR" in found) is own


def test_java_reads_names_of_files_as_utf_8_whatever_the_locale_is(tmp_path: Path) -> None:
    assert lake_environment(StateFolder(tmp_path), {}, tmp_path)["LC_ALL"] == "C.UTF-8"


def test_a_loss_is_accepted_by_the_landing_job_of_a_start_in_the_background_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[StackOptions] = []
    monkeypatch.setattr(starting, "_run", lambda state, options: given.append(options))
    for asked in (StackOptions(), StackOptions(accept_loss=True)):
        CliRunner().invoke(app, ["up", "--state", str(tmp_path), *starting._arguments(asked)])
        assert given.pop() == asked
        assert ("--accept-loss" in _lake_command(asked)) is asked.accept_loss
    assert ACCEPT == gaps.ACCEPT
