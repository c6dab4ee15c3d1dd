"""``test``: what a change must pass, in three tiers, on a machine that has nothing but Python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Annotated, Final

import typer

from headrace_cli import console
from headrace_cli.ground import EXIT_FAILED, IN_CHECKOUT, ROOT, CommandError
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

WHOLE: Final = (
    *("-n", str(WORKERS), "--dist", "loadfile", "--no-loadscope-reorder"),
    *("--reruns=1", f"--max-suite-reruns={MOST_RERUNS}"),
)
"""How a whole tier runs: spread over workers file by file, with a failed test once more, which the run names and explains
(tests/conftest.py). pytest's own options follow it, and win: `-n0` for a debugger. A selection is strict, in one process.
"""
SELECTING: Final = ("tests", "./tests", "-k", "-m", "--lf", "--last-failed", "--sw", "--stepwise")
"""Beginnings of pytest's arguments that select tests."""

app = typer.Typer()


@app.command("test", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run_tests(
    context: typer.Context,
    everything: Annotated[
        bool, typer.Option("--all", help="Run every test that this machine can run, not only the quick ones.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="The same, and all of it at full size: hours.")] = False,
    lint: Annotated[bool, typer.Option("--lint/--no-lint", help="Also run ruff and mypy.")] = True,
) -> int:
    """Run ruff, mypy and the quick tests; further arguments go to pytest, and tests that they select all run."""
    if not IN_CHECKOUT:
        raise CommandError("test needs a checkout of the repository: call ./headrace there.")
    chosen = any(argument.startswith(SELECTING) for argument in context.args)
    tier = "full" if full else "all" if everything or chosen else "quick"
    tests = ("pytest", f"--tier={tier}", *(() if chosen else WHOLE), *context.args)
    for needed in ("kafka", "spark", *(() if tier == "quick" else ("s3",))):
        jars(needed)  # here, where it is seen; a test would be silent for minutes
    # Tests start hundreds of processes: what one has compiled serves the others, also where a checkout gets no bytecode.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": os.path.join(sys.prefix, "bytecode"), "JAVA_HOME": str(java_home())}
    failed = False
    for name, command in (*(LINT if lint else ()), ("pytest", tests)):
        began = time.monotonic()
        status = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, env=environment).returncode
        took = f"{time.monotonic() - began:.0f} s"
        ended = f", ended by {signal.Signals(-status).name}" if status < 0 else f", status {status}" if status else ""
        console.line(name, "bad" if status else "good", took + ended)
        failed |= status != 0
    return EXIT_FAILED if failed else 0
