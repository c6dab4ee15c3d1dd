"""The page about a protocol of one's own: its package is installed as the page shows it, and nothing else knows of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from headrace_common import receiver

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "your-own-protocol.md"
LINES = 100
FILES = dict(re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE))

ID = 'self._key, index.to_bytes(4, "big")'
"""What tells an event from its equals."""

pytestmark = pytest.mark.timeout(3600)


def test_it_is_a_hundred_lines_of_code() -> None:
    code = re.sub(r'""".*?"""', "", "".join(FILES.values()), flags=re.DOTALL)
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= LINES


def test_all_that_the_page_names_is_at_the_front_door() -> None:
    named = set(re.findall(r"`(?:yield\s+|\w+=)?([A-Z]\w+)", PAGE.read_text()))
    elsewhere = {"Dialect", "LISTS", "QuarantinedItem", "ReplayOutcome"}  # the page says where
    assert [name for name in named - elsewhere if not hasattr(receiver, name)] == []


def installed(folder: Path) -> dict[str, str]:
    """Returns the environment of a process in which the package is installed, below `folder`."""
    package, site = folder / "package", folder / "site"
    package.mkdir()
    for name, text in FILES.items():
        (package / name).write_text(text)
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--no-compile")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", *offline, "--target", str(site), str(package))
    subprocess.run(pip, check=True, timeout=600)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *filter(None, sys.path)])}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return installed(tmp_path_factory.mktemp("jotter"))


def ran(environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    """Runs one of our programs, or pytest."""
    python = (sys.executable, "-m", *command)
    return subprocess.run(python, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def suite(environment: dict[str, str], tests: str) -> str:
    return ran(environment, "pytest", "-q", "-p", "no:cacheprovider", "tests/contract", "-k", tests).stdout[-10_000:]


def simulated(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return ran(environment, "tests.simulation", "--protocol", "jotter", "--seeds", "0-47")


def test_settings_and_tools_know_it(environment: dict[str, str]) -> None:
    valid = ran({**environment, "HEADRACE_JOTTER__X": "1"}, "headrace_cli", "validate", "jotter", "--offline")
    assert valid.returncode == 0, valid.stdout + valid.stderr
    assert "JOTTER" not in valid.stdout  # the section has a name, and who does not read it ignores it
    refused = ran(environment, "headrace_cli", "send", "jotter", "127.0.0.1:1", "--rate", "1", "--for", "1s")
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
        (ID, "self._key", "equal_events_have_ids_of_their_own"),
        (f"{ID}, self._events[index]", ID, "same_name_has_other_ids"),
        ("sum(64 + len(each) for each in events)", "0", "nothing_is_acknowledged_before_it_is_stored"),
        ("limits.event_bytes", "1 << 40", "event_that_is_too_large_is_quarantined"),
        ("add(key)", "add(key); self._pending.stored(ticket, len(events), True)", ""),
        (ID, 'os.urandom(8), index.to_bytes(4, "big")', ""),
    ],
    ids=[
        *("no number in the frame", "no content", "frames of no size", "events of any size"),
        *("acknowledges before Kafka has stored", "a frame sent again has other ids"),
    ],
)
def test_a_broken_one_is_found(environment: dict[str, str], tmp_path: Path, line: str, instead: str, test: str) -> None:
    """By a test of the contract suite, or by the simulation."""
    changed = broken(environment, tmp_path, line, instead)
    if test:
        assert re.search(r"^1 failed, \d+ deselected", said := suite(changed, f"jotter and {test}"), re.MULTILINE), said
    else:
        done = simulated(changed)
        assert (done.returncode, "48 seeds" in done.stdout) == (1, True), done.stdout + done.stderr
