"""The page about a protocol of one's own: its package is installed as the page shows it, and nothing else knows of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.waiting import wait_for
from tests.lake.lander import QUICK, landed

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "your-own-protocol.md"
LINES = 100
LANDING = 900.0
"""Seconds for what waits for Spark, as in `tests/cli/test_stack.py`."""
FILES = dict(re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE))

ID = 'self._key, index.to_bytes(4, "big")'
"""What tells an event from its equals."""

pytestmark = pytest.mark.timeout(3600)


def test_it_is_a_hundred_lines_of_code() -> None:
    code = re.sub(r'""".*?"""', "", "".join(FILES.values()), flags=re.DOTALL)
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= LINES


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process in which the package is installed."""
    package, site = tmp_path_factory.mktemp("package"), tmp_path_factory.mktemp("site")
    for name, text in FILES.items():
        (package / name).write_text(text)
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--no-compile")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", *offline, "--target", str(site), str(package))
    subprocess.run(pip, check=True, timeout=600)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *filter(None, sys.path)])}


def ran(environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    """Runs one of our programs, or pytest."""
    python = (sys.executable, "-m", *command)
    return subprocess.run(python, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def headrace(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return ran({**environment, **QUICK, "HEADRACE_LAKE__TRIGGER": "0.5"}, "headrace_cli", *arguments)


def suite(environment: dict[str, str], tests: str) -> str:
    return ran(environment, "pytest", "-q", "-p", "no:cacheprovider", "tests/contract", "-k", tests).stdout[-10_000:]


def simulated(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return ran(environment, "tests.simulation", "--protocol", "jotter", "--seeds", "0-47")


def test_settings_and_tools_know_it(environment: dict[str, str]) -> None:
    valid = headrace({**environment, "HEADRACE_JOTTER__X": "1"}, "validate", "jotter", "--offline")
    assert valid.returncode == 0, valid.stdout + valid.stderr
    assert "JOTTER" not in valid.stdout  # the section has a name, and who does not read it ignores it
    refused = headrace(environment, "send", "jotter", "127.0.0.1:1", "--rate", "1", "--for", "1s")
    assert "127.0.0.1:1 refuses connections" in refused.stderr


@pytest.mark.kafka
@pytest.mark.long
def test_it_passes_the_contract_suite(environment: dict[str, str]) -> None:
    assert re.search(r"^[2-9]\d passed", said := suite(environment, "jotter"), re.MULTILINE), said


def broken(environment: dict[str, str], folder: Path, line: str, instead: str) -> dict[str, str]:
    """The environment of a process in which the package has another line."""
    text = FILES["headrace_jotter.py"]
    assert text.count(line) == 1
    (folder / "headrace_jotter.py").write_text(text.replace(line, instead))
    return {**environment, "PYTHONPATH": f"{folder}{os.pathsep}{environment['PYTHONPATH']}"}


def test_no_seed_of_the_simulation_breaks_a_promise(environment: dict[str, str]) -> None:
    done = simulated(environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"48 seeds, 0 failures, .* [1-9]\d\d acknowledgements", done.stdout), done.stdout


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "instead", "test"),
    [
        (f"{ID}, self._events[index]", "self._events[index]", "equal_events_have_ids_of_their_own"),
        (ID, "self._key", "equal_events_have_ids_of_their_own"),
        (f"{ID}, self._events[index]", ID, "same_name_and_other_content_has_other_ids"),
        ("sum(64 + len(each) for each in events)", "0", "nothing_is_acknowledged_before_it_is_stored"),
        ("limits.event_bytes", "1 << 40", "event_that_is_too_large_is_quarantined"),
        ("add(key)", "add(key); self._pending.stored(ticket, len(events), True)", ""),
        (ID, 'os.urandom(8), index.to_bytes(4, "big")', ""),
    ],
    ids=[
        *("text alone", "no number in the frame", "no content", "frames of no size", "events of any size"),
        *("acknowledges before Kafka has stored", "a frame sent again has other ids"),
    ],
)
def test_a_broken_one_is_found(environment: dict[str, str], tmp_path: Path, line: str, instead: str, test: str) -> None:
    """By a test of the contract suite, or by the simulation."""
    text = FILES["headrace_jotter.py"]
    assert text.count(line) == 1
    (tmp_path / "headrace_jotter.py").write_text(text.replace(line, instead))
    broken = {**environment, "PYTHONPATH": f"{tmp_path}{os.pathsep}{environment['PYTHONPATH']}"}
    if test:
        assert re.search(r"^1 failed, \d+ deselected", said := suite(broken, f"jotter and {test}"), re.MULTILINE), said
    else:
        done = simulated(broken)
        assert (done.returncode, "48 seeds" in done.stdout) == (1, True), done.stdout + done.stderr


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.long
def test_its_events_are_in_the_lake_once(environment: dict[str, str], tmp_path: Path) -> None:
    state = ("--state", str(tmp_path / "state"))
    up = headrace(environment, "up", "--services", "jotter", "--any-port", "--no-live", "--detach", *state)
    try:
        assert up.returncode == 0, up.stdout + up.stderr
        told = json.loads(
            headrace(environment, "send", "jotter", "--rate", "100", "--for", "1s", "--json", *state).stdout
        )
        assert told["sent"] == told["acknowledged"] > 0
        wait_for(lambda: landed(tmp_path / "state" / "lake") >= told["sent"], "the batch", LANDING)
        sql = "select protocol, count(*) as n from events group by all"
        counted = json.loads(headrace(environment, "query", sql, "--json", *state).stdout)
        assert counted == [{"protocol": "jotter", "n": told["sent"]}]
    finally:
        headrace(environment, "down", *state)
