"""What ``./headrace test`` hands to pytest, and what it says of the outcome."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import typer
from headrace_cli.ground import ROOT
from headrace_cli.verbs import test as verb
from headrace_cli.verbs.test import MOST_RERUNS, WHOLE, Tier

from tests import tiers

UNSTEADY = """\
import pytest

@pytest.mark.parametrize("number", range({failures}))
def test_it(number, before=set()):
    if number not in before:
        before.add(number)
        raise AssertionError("unsteady")
"""

Run = Callable[..., tuple[int, list[str]]]


@pytest.fixture(autouse=True)
def everything_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "jars", lambda *_: None)
    monkeypatch.setattr(verb, "java_home", lambda: Path("/java"))


def context(arguments: Sequence[str]) -> typer.Context:
    """Of a call with these arguments for pytest."""
    made = typer.Context(typer.main.get_command(verb.app))
    made.args = [*arguments]
    return made


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Calls the verb with a stand-in for pytest: the status, and pytest's arguments."""

    def call(arguments: Sequence[str], tier: Tier | None = None, status: int = 0) -> tuple[int, list[str]]:
        called: list[list[str]] = []

        def pytest_itself(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
            called.append(command)
            return subprocess.CompletedProcess(command, status)

        monkeypatch.setattr(subprocess, "run", pytest_itself)
        whole = {"everything": tier is Tier.ALL, "full": tier is Tier.FULL}
        ended = verb.run_tests(context(arguments), lint=False, **whole)
        ((python, *rest),) = called
        assert (python, rest[:2]) == (sys.executable, ["-m", "pytest"])
        return ended, rest[2:]

    return call


@pytest.mark.parametrize(
    ("arguments", "asked", "tier", "handed"),
    [
        ([], None, "quick", [*WHOLE]),
        (["-x"], Tier.ALL, "all", [*WHOLE, "-x"]),
        (["--maxfail=3", "-n0"], Tier.FULL, "full", [*WHOLE, "--maxfail=3", "-n0"]),
        (["tests/cli", "--pdb"], None, "all", ["tests/cli", "--pdb"]),
        (["tests/cli"], Tier.FULL, "full", ["tests/cli"]),
        *(([*words], None, "all", [*words]) for words in (["-k", "kill"], ["-kkill"], ["-m", "kafka"], ["--lf"])),
    ],
)
def test_what_is_handed_to_pytest(
    run: Run, arguments: list[str], asked: Tier | None, tier: str, handed: list[str]
) -> None:
    status, options = run(arguments, asked)
    assert status == 0
    assert options == [f"--tier={tier}", *handed]


@pytest.mark.parametrize(("status", "end"), [(-11, "SIGSEGV"), (4, "status 4")])
def test_it_fails_if_pytest_did_and_says_how_it_ended(
    run: Run, capsys: pytest.CaptureFixture[str], status: int, end: str
) -> None:
    assert run([], status=status)[0] == 1
    assert end in capsys.readouterr().out


def test_both_sides_know_the_same_tiers() -> None:
    assert [tier.value for tier in Tier] == [tier.value for tier in tiers.Tier]


def ran(folder: Path, tests: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest with these tests, by folder, as the project's own run."""
    contract = [f"tests/contract/{name}.py" for name in ("__init__", "embedded", "topic", "waiting")]
    for name in ("pyproject.toml", "tests/__init__.py", "tests/conftest.py", "tests/tiers.py", *contract):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text((ROOT / name).read_text())
    for name, code in tests.items():
        (folder / "tests" / name).mkdir()
        (folder / "tests" / name / f"test_{name}.py").write_text(code)
    command = [sys.executable, "-m", "pytest", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize(("folder", "failures", "status"), [("sample", 3, 0), ("sample", 4, 1), ("simulation", 1, 1)])
def test_a_failed_test_is_run_once_more_and_named(tmp_path: Path, folder: str, failures: int, status: int) -> None:
    """At most three of a run, and none that a seed has made."""
    options = ("--reruns=1", f"--max-suite-reruns={MOST_RERUNS}", "-p", "no:cacheprovider")
    done = ran(tmp_path, {folder: UNSTEADY.format(failures=failures)}, *options)
    assert done.returncode == status, done.stdout + done.stderr
    again = 0 if folder == "simulation" else min(failures, MOST_RERUNS)
    assert done.stdout.count("failed, and was run once more: tests/sample/test_sample.py::test_it[") == again
    assert done.stdout.count("AssertionError: unsteady") >= failures
