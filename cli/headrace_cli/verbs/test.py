"""``test``: what a change must pass, in three tiers, on a machine that has nothing but Python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Final

import typer

from headrace_cli import console
from headrace_cli.ground import EXIT_FAILED, ROOT, check_checkout
from headrace_cli.machine.jars import jars
from headrace_cli.machine.java import java_home

LINT: Final = (
    ("ruff check", ("ruff", "check", ".", "headrace")),
    ("ruff format", ("ruff", "format", "--check", ".", "headrace")),
    ("mypy", ("mypy",)),
)
"""The launcher has no suffix, so it is named: to mypy in pyproject.toml."""

WORKERS: Final = 4
"""Also on two cores, because most tests wait most of their time. Each may have a broker and a JVM of Spark of its own: 1.5 GB."""

MOST_RERUNS: Final = 3
"""More failures of one run are not a machine's noise."""

TESTS: Final = ROOT / "tests"
SELECTING: Final = ("-k", "-m", "--lf", "--last-failed", "--sw", "--stepwise")
"""pytest's options that select tests; its paths are recognised by where they lead."""

ONE_PROCESS: Final = (
    "--pdb",
    "--trace",
    "-s",
    "--capture=no",
    "--co",
    "--collect-only",
    "-n",
    "--numprocesses",
    "--dist",
)
"""pytest's options that need one process, or say themselves how to spread."""


class Tier(StrEnum):
    """How much runs. `tests/tiers.py` obeys it."""

    QUICK = "quick"
    ALL = "all"
    FULL = "full"


app = typer.Typer()


@app.command("test", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run_tests(
    context: typer.Context,
    require: Annotated[
        str,
        typer.Option(
            metavar="TOOLS",
            help="Fail instead of skipping tests that need one of java,go,npm,maven,docker,compose,systemd,helm,kubeconform,"
            "promtool,chromium,actionlint,zizmor,k8s,node.",
        ),
    ] = "",
    everything: Annotated[
        bool, typer.Option("--all", help="Run every test that this machine can run, not only the quick ones.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="The same, and all of it at full size: hours.")] = False,
    lint: Annotated[bool, typer.Option("--lint/--no-lint", help="Also run ruff and mypy.")] = True,
) -> int:
    """Run ruff, mypy and the quick tests; further arguments go to pytest, and tests that they select all run."""
    check_checkout("test")
    arguments = context.args
    tier = Tier.FULL if full else Tier.ALL if everything or selects(arguments) else Tier.QUICK
    shared = spread(arguments, os.cpu_count() or 1)
    failed = []
    for name, command in LINT if lint else ():
        began = time.monotonic()
        ok = subprocess.run([sys.executable, "-m", *command], cwd=ROOT).returncode == 0
        console.line(name, "good" if ok else "bad", f"{time.monotonic() - began:.1f} s")
        if not ok:
            failed.append(name)
    with console.fetching() as progress:  # here, where it is seen; a test would be silent for minutes
        for name in ("kafka", "spark", *(() if tier is Tier.QUICK else ("s3",))):
            jars(name, progress)
    began = time.monotonic()
    tests = [sys.executable, "-m", "pytest", f"--require={require}", f"--tier={tier}"]
    tests += [*once_more(arguments), *shared, *arguments]
    status = subprocess.run(tests, cwd=ROOT, env={**_environment(), "JAVA_HOME": str(java_home())}).returncode
    end = (
        "" if status in (0, 1) else f", ended by {signal.Signals(-status).name}" if status < 0 else f", status {status}"
    )
    console.line("pytest", "bad" if status else "good", f"{time.monotonic() - began:.0f} s{end}")
    if status:
        failed.append("pytest")
    return EXIT_FAILED if failed else 0


def _environment() -> dict[str, str]:
    """Return the environment of tests. They start hundreds of processes: what one has compiled serves the others, also where a
    checkout gets no bytecode.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": os.path.join(sys.prefix, "bytecode")}


def selects(arguments: Sequence[str]) -> bool:
    """Return whether pytest's arguments name some of the tests."""
    return any(_is_one_of(SELECTING, argument) or _is_of_tests(argument) for argument in arguments)


def _is_one_of(options: Sequence[str], argument: str) -> bool:
    """Return whether a word is one of the options; a short one may have its value appended: ``-n4``."""
    short = not argument.startswith("--") and argument[:2] in options
    return short or argument.partition("=")[0] in options or argument in options


def _is_of_tests(argument: str) -> bool:
    path = (ROOT / argument.partition("::")[0]).resolve()
    return not argument.startswith("-") and path.is_relative_to(TESTS) and path.exists()


def spread(arguments: Sequence[str], cores: int) -> list[str]:
    """Return options that spread the tests over workers, file by file, if there is more than one core.

    A selection runs in one process, so that a debugger works and the first failure stops it.
    """
    if cores < 2 or _alone(arguments):
        return []
    return ["-n", str(WORKERS), "--dist", "loadfile", "--no-loadscope-reorder"]


def once_more(arguments: Sequence[str]) -> list[str]:
    """Return options by which a whole tier runs a failed test once more, `MOST_RERUNS` of them at most. The run names each and
    shows why it failed (tests/conftest.py). A selection is strict.
    """
    return [] if _alone(arguments) else ["--reruns=1", f"--max-suite-reruns={MOST_RERUNS}"]


def _alone(arguments: Sequence[str]) -> bool:
    return selects(arguments) or any(_is_one_of(ONE_PROCESS, argument) for argument in arguments)
