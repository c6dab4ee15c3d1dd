"""What ``./headrace test`` hands to pytest, and what it says of the outcome."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from headrace_cli.ground import ROOT
from headrace_cli.verbs import check as verb
from headrace_cli.verbs.check import MOST_RERUNS, MOST_WORKERS, Tier, once_more, selects, spread

from tests import tiers

PARALLEL = ["-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"]
SAMPLE = """\
import pytest
from tests.tiers import examples, sized

def test_quick(): assert sized(1, 2, 3) == {number}
@pytest.mark.long
def test_long(): pass
@pytest.mark.full
def test_full(): pass
@pytest.mark.long
@pytest.mark.full
def test_both(): pass
"""

UNSTEADY = """\
import pytest

@pytest.mark.parametrize("number", range({failures}))
def test_it(number, before=set()):
    if number not in before:
        before.add(number)
        raise AssertionError("unsteady")
"""

Run = Callable[..., tuple[int, list[str]]]


def test_one_core_runs_one_test_after_the_other() -> None:
    assert spread([], 1) == []


@pytest.mark.parametrize(("cores", "workers"), [(2, 3), (MOST_WORKERS - 1, MOST_WORKERS), (MOST_WORKERS, MOST_WORKERS)])
def test_more_cores_share_the_files(cores: int, workers: int) -> None:
    assert spread([], cores)[:2] == ["-n", str(workers)]


@pytest.mark.parametrize(
    "arguments",
    [["tests/cli"], ["tests/cli/test_check.py::test_it"], ["-k", "kill"], ["-kkill"], ["-m", "kafka"], ["--lf"]],
)
def test_a_selection_runs_in_one_process(arguments: list[str]) -> None:
    assert selects(arguments)
    assert spread(arguments, 2) == once_more(arguments) == []


@pytest.mark.parametrize("arguments", [["--pdb"], ["-s"], ["-n0"], ["-n", "3"], ["--numprocesses=3"], ["--co"]])
def test_some_options_want_to_say_themselves_how_many_processes(arguments: list[str]) -> None:
    assert not selects(arguments)
    assert spread(arguments, 2) == once_more(arguments) == []


@pytest.mark.parametrize(
    "arguments",
    [[], ["-x"], ["-q"], ["--maxfail=3"], ["--color=no"], ["--durations", "10"], ["--junit-xml=report.xml"], ["cli"]],
)
def test_other_options_select_nothing(arguments: list[str]) -> None:
    assert not selects(arguments)
    assert spread(arguments, 2) == PARALLEL


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Calls the verb with a stand-in for pytest: the status, and pytest's arguments."""

    def call(arguments: Sequence[str], tier: Tier | None = None, status: int = 0) -> tuple[int, list[str]]:
        called: list[list[str]] = []

        def pytest_itself(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
            called.append(command)
            return subprocess.CompletedProcess(command, status)

        monkeypatch.setattr(verb.subprocess, "run", pytest_itself)
        monkeypatch.setattr(verb.os, "cpu_count", lambda: 2)
        monkeypatch.setattr(verb, "jars", lambda *_: None)
        monkeypatch.setattr(verb, "java_home", lambda: Path("/java"))
        ended = verb.check(arguments, require="go", lint=False, tier=tier)
        ((python, *rest),) = called
        assert (python, rest[:2]) == (sys.executable, ["-m", "pytest"])
        return ended, rest[2:]

    return call


def tier_in(options: list[str]) -> str:
    (tier,) = [option.partition("=")[2] for option in options if option.startswith("--tier=")]
    return tier


def test_without_arguments_the_quick_tier_runs(run: Run) -> None:
    status, options = run([])
    assert status == 0
    assert tier_in(options) == "quick"
    assert "--require=go" in options
    assert options[-5:] == PARALLEL


@pytest.mark.parametrize("tier", [Tier.ALL, Tier.FULL])
def test_more_tiers_run_in_parallel_with_options_that_select_nothing(run: Run, tier: Tier) -> None:
    _, options = run(["-x"], tier)
    assert tier_in(options) == tier
    assert "--require=go" in options
    assert options[-6:] == [*PARALLEL, "-x"]


def test_all_of_a_selection_runs(run: Run) -> None:
    _, options = run(["tests/cli", "--pdb"])
    assert tier_in(options) == "all"
    assert "-n" not in options
    assert options[-2:] == ["tests/cli", "--pdb"]


def test_a_selection_runs_at_full_size_if_asked_for(run: Run) -> None:
    _, options = run(["tests/cli"], Tier.FULL)
    assert tier_in(options) == "full"


def test_it_fails_if_one_test_failed(run: Run) -> None:
    assert run([], status=1)[0] == 1


def test_both_sides_know_the_same_tiers() -> None:
    assert [tier.value for tier in Tier] == [tier.value for tier in tiers.Tier]


@pytest.mark.parametrize(
    ("tier", "workers", "number", "passed", "left_out"),
    [
        ("quick", "0", 1, 1, "left out: 3 (sample 3), which --all runs, too"),
        pytest.param("quick", "2", 1, 1, "left out: 3 (sample 3), which --all runs, too", marks=pytest.mark.long),
        pytest.param("all", "0", 2, 2, "left out: 2 (sample 2), which --full runs, too", marks=pytest.mark.long),
        pytest.param("full", "0", 3, 4, "", marks=pytest.mark.long),
    ],
)
def test_pytest_runs_the_tier_and_says_what_it_leaves_out(
    tmp_path: Path, tier: str, workers: str, number: int, passed: int, left_out: str
) -> None:
    done = ran(tmp_path, {"sample": SAMPLE.format(number=number)}, f"--tier={tier}", "-n", workers)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{passed} passed" in done.stdout
    assert "\nminutes: sample " in done.stdout
    assert [line for line in done.stdout.splitlines() if line.startswith("left out")] == [left_out][: bool(left_out)]


def ran(folder: Path, tests: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest with these tests, by folder, as the project's own run."""
    for name in ("__init__.py", "conftest.py", "tiers.py", "contract/__init__.py", "contract/waiting.py"):
        (folder / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "tests" / name).write_text((ROOT / "tests" / name).read_text())
    (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    for name, code in tests.items():
        (folder / "tests" / name).mkdir()
        (folder / "tests" / name / f"test_{name}.py").write_text(code)
    command = [sys.executable, "-m", "pytest", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize(("folder", "failures", "status"), [("sample", 3, 0), ("sample", 4, 1), ("simulation", 1, 1)])
def test_a_failed_test_is_run_once_more_and_named(tmp_path: Path, folder: str, failures: int, status: int) -> None:
    """At most three of a run, and none that a seed has made."""
    done = ran(tmp_path, {folder: UNSTEADY.format(failures=failures)}, *once_more([]), "-p", "no:cacheprovider")
    assert done.returncode == status, done.stdout + done.stderr
    again = 0 if folder == "simulation" else min(failures, MOST_RERUNS)
    assert done.stdout.count("failed, and was run once more: tests/sample/test_sample.py::test_it[") == again
    assert done.stdout.count("AssertionError: unsteady") >= failures
