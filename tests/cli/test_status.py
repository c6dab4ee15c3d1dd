"""The table of `status` in a terminal of 80 columns, and the lines of other verbs."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from headrace_cli.ground import EXIT_NOTHING_RUNS, run
from headrace_cli.stack.state import StateFolder
from headrace_cli.verbs import console, running
from headrace_cli.verbs.console import Reporter, parse_line
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
    running._table(record, {"lumberjack": "on"}, Path("/state/log"))
    lines = shown.getvalue().splitlines()
    for address in ("127.0.0.1:5044", "http://127.0.0.1:8081/", "http://127.0.0.1:8086/", "http://127.0.0.1:8080/"):
        assert sum(address in line for line in lines) == 1, lines
    assert any("native core" in line and "lumberjack" in line for line in lines)


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    state = StateFolder(tmp_path / "state")
    state.make()
    return state


def told(capsys: pytest.CaptureFixture[str], state: StateFolder) -> tuple[int, str]:
    result = running.status(state.path, as_json=False)
    return result, capsys.readouterr().out


def test_a_damaged_record_of_a_living_stack_is_no_dead_supervisor(
    state: StateFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    state.lock()
    result, shown = told(capsys, state)
    assert (result, "starting" in shown) == (EXIT_NOTHING_RUNS, True)
    state.record.write_text('{"serv')
    result, shown = told(capsys, state)
    assert result == 1
    assert str(state.record) in shown.replace("\n", "")


def test_a_record_that_is_left_says_that_the_last_run_was_killed(
    state: StateFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(capsys, state)[0] == EXIT_NOTHING_RUNS
    state.write_record({"services": {}})
    result, shown = told(capsys, state)
    assert (result, "killed" in shown) == (EXIT_NOTHING_RUNS, True)
    state.delete_record()
    assert "killed" not in told(capsys, state)[1]


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


@pytest.mark.parametrize("row", ["", "Traceback (most recent call last):", "2026 words", "headrace: no: way"])
def test_another_line_is_none_of_its(row: str) -> None:
    assert parse_line(row) is None
