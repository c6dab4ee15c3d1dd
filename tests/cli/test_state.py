"""Whose a state folder is, and whom `down` may signal."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from headrace_cli.ground import CommandError
from headrace_cli.stack.stack import lake_environment
from headrace_cli.stack.state import StateFolder
from headrace_cli.verbs import down as stopping

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


@pytest.mark.parametrize(
    ("verb", "said"), [(("down", "--purge"), "not a state folder"), (("up", "--any-port"), "is not empty")]
)
def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path, verb: tuple[str, str], said: str) -> None:
    (tmp_path / "precious").write_text("x")
    done = headrace(*verb, "--state", str(tmp_path))
    assert done.returncode == 1
    assert said in done.stderr
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("precious", "x")]


@pytest.mark.parametrize(("name", "own"), [("a b", True), ("a,b", False)])
def test_sparks_scratch_is_in_the_folder_unless_spark_splits_its_name(tmp_path: Path, name: str, own: bool) -> None:
    found = lake_environment(StateFolder(tmp_path / name), {}, tmp_path)
    assert ("TMPDIR" in found) is own
    assert found["LC_ALL"] == "C.UTF-8", "Java reads names of files as UTF-8, whatever the locale is"
