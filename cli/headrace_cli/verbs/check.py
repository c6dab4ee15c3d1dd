"""``test``: what a change must pass, in three tiers, on a machine that has nothing but Python."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from headrace_cli.ground import EXIT_FAILED, ROOT, check_checkout
from headrace_cli.machine.toolchain import jars, java_home
from headrace_cli.verbs import console

LINT: Final = (
    ("ruff check", ("ruff", "check", ".", "headrace")),
    ("ruff format", ("ruff", "format", "--check", ".", "headrace")),
    ("mypy", ("mypy",)),
    ("mypy headrace", ("mypy", "--scripts-are-modules", "headrace")),
)
"""The launcher has no suffix, so it is named."""

MOST_WORKERS: Final = 4
"""Each may have a broker and a JVM of Spark of its own: 1.5 GB."""

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
    """How much runs. `tests/README.md` says what each tier shows; `tests/tiers.py` obeys it."""

    QUICK = "quick"
    ALL = "all"
    FULL = "full"


MORE: Final = {Tier.QUICK: "--all", Tier.ALL: "--full"}
"""The option that also runs what a tier leaves out."""


@dataclass(frozen=True)
class Counts:
    """Of one run of pytest."""

    passed: int
    failed: int
    skipped: int
    seconds: dict[str, float]
    """By folder in tests/: what its tests took, one after the other."""

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def check(arguments: Sequence[str], *, require: str, lint: bool, tier: Tier | None = None) -> int:
    """Run the linters, the type checker and pytest, all of them even if one fails. Exit status 0 if all passed.

    `arguments` are pytest's. Without a `tier` it is quick, but a selection of tests runs whole.
    """
    check_checkout("test")
    tier = tier or (Tier.ALL if selects(arguments) else Tier.QUICK)
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
    with tempfile.TemporaryDirectory() as folder:
        report, left_out = _report(arguments) or Path(folder) / "report.xml", Path(folder) / "left-out.json"
        report.unlink(missing_ok=True)  # an older one tells nothing of this run
        tests = [sys.executable, "-m", "pytest", f"--junit-xml={report}", f"--require={require}", f"--tier={tier}"]
        workers = spread(arguments, os.cpu_count() or 1)
        tests += [f"--left-out={left_out}", *workers, *arguments]
        ok = subprocess.run(tests, cwd=ROOT, env={**os.environ, "JAVA_HOME": str(java_home())}).returncode == 0
        counts = _counts(report)
        lacking = json.loads(left_out.read_text()) if left_out.exists() else {}
    told = str(counts) if counts is not None else "nothing was run"
    console.line("pytest", "good" if ok else "bad", f"{told} in {time.monotonic() - began:.0f} s")
    if not ok:
        failed.append("pytest")
    if counts is not None:
        share = 60 * (int(workers[1]) if workers else 1)
        shares = sorted((folder, seconds / share) for folder, seconds in counts.seconds.items())
        console.line("minutes", "note", ", ".join(f"{folder} {minutes:.1f}" for folder, minutes in shares))
    if lacking:
        console.line("left out", "note", f"{told_by_folder(lacking)}. Run them too: {to_run_more(arguments, tier)}")
    return EXIT_FAILED if failed else 0


def selects(arguments: Sequence[str]) -> bool:
    """Whether pytest's arguments name some of the tests."""
    return any(_is_one_of(SELECTING, argument) or _is_of_tests(argument) for argument in arguments)


def _is_one_of(options: Sequence[str], argument: str) -> bool:
    """A short option may have its value behind it: ``-n4``."""
    short = not argument.startswith("--") and argument[:2] in options
    return short or argument.partition("=")[0] in options or argument in options


def _is_of_tests(argument: str) -> bool:
    path = (ROOT / argument.partition("::")[0]).resolve()
    return not argument.startswith("-") and path.is_relative_to(TESTS) and path.exists()


def spread(arguments: Sequence[str], cores: int) -> list[str]:
    """Options that spread the tests over workers, file by file: one more than cores, because most tests wait most of their time.

    A selection runs in one process, so that a debugger works and the first failure stops it.
    """
    alone = cores < 2 or selects(arguments) or any(_is_one_of(ONE_PROCESS, argument) for argument in arguments)
    return [] if alone else ["-n", str(min(cores + 1, MOST_WORKERS)), "--dist", "loadfile", "--no-loadscope-reorder"]


def told_by_folder(left_out: dict[str, int]) -> str:
    """As ``12 tests (forward 2, lake 10)``."""
    total = sum(left_out.values())
    folders = ", ".join(f"{folder} {count}" for folder, count in sorted(left_out.items()))
    return f"{total} test{'s' * (total != 1)} ({folders})"


def to_run_more(arguments: Sequence[str], tier: Tier) -> str:
    """Return the command that also runs what `tier` has left out."""
    return shlex.join(["./headrace", "test", MORE[tier], *arguments])


def _report(arguments: Sequence[str]) -> Path | None:
    """Where the caller wants pytest's report, if anywhere."""
    named = [
        argument.partition("=")[2] for argument in arguments if argument.startswith(("--junit-xml=", "--junitxml="))
    ]
    return ROOT / named[-1] if named else None


def _counts(report: Path) -> Counts | None:
    """Return the counts that pytest wrote; None if it wrote none."""
    if not report.exists():
        return None
    suites = ElementTree.parse(report).getroot().iter("testsuite")  # noqa: S314  (our own pytest wrote it)
    total = failed = skipped = 0
    seconds: dict[str, float] = defaultdict(float)
    for suite in suites:
        total += int(suite.get("tests", 0))
        failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped += int(suite.get("skipped", 0))
        for case in suite.iter("testcase"):
            folder = case.get("classname", "").removeprefix("tests.").partition(".")[0]
            seconds[folder] += float(case.get("time", 0))
    return Counts(total - failed - skipped, failed, skipped, seconds)
