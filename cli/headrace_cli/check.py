"""``test``: everything that a change must pass, on a machine that has nothing but Python."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace_cli import console
from headrace_cli.errors import EXIT_FAILED
from headrace_cli.places import ROOT
from headrace_cli.toolchain import jars, java_home

LINT: Final = (
    ("ruff check", ("ruff", "check", ".", "headrace")),
    ("ruff format", ("ruff", "format", "--check", ".", "headrace")),
    ("mypy", ("mypy",)),
    ("mypy headrace", ("mypy", "--scripts-are-modules", "headrace")),
)
"""The launcher has no suffix, so it is named."""

MOST_WORKERS: Final = 4
"""Each may have a broker and a JVM of Spark of its own: 1.5 GB."""


@dataclass(frozen=True)
class Counts:
    """Of one run of pytest."""

    passed: int
    failed: int
    skipped: int

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def check(arguments: Sequence[str], *, require: str, lint: bool) -> int:
    """Run the linters, the type checker and pytest, all of them even if one fails. Exit status 0 if all passed."""
    failed = []
    for name, command in LINT if lint else ():
        began = time.monotonic()
        ok = subprocess.run([sys.executable, "-m", *command], cwd=ROOT).returncode == 0
        console.line(name, "good" if ok else "bad", f"{time.monotonic() - began:.1f} s")
        if not ok:
            failed.append(name)
    with console.fetching() as progress:  # here, where it is seen; a test would be silent for minutes
        for name in ("kafka", "spark", "s3"):
            jars(name, progress)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        tests = [sys.executable, "-m", "pytest", f"--junit-xml={report}", f"--require={require}"]
        tests += arguments or spread(os.cpu_count() or 1)
        ok = subprocess.run(tests, cwd=ROOT, env={**os.environ, "JAVA_HOME": str(java_home())}).returncode == 0
        counts = _counts(report)
    told = str(counts) if counts is not None else "nothing was run"
    console.line("pytest", "good" if ok else "bad", f"{told} in {time.monotonic() - began:.0f} s")
    if not ok:
        failed.append("pytest")
    return EXIT_FAILED if failed else 0


def spread(cores: int) -> list[str]:
    """Options that spread the whole suite over workers, file by file: most tests wait for something most of their time."""
    return ["-n", str(min(cores, MOST_WORKERS)), "--dist", "loadfile"] if cores > 1 else []


def _counts(report: Path) -> Counts | None:
    """What pytest wrote; None if it did not come that far."""
    if not report.exists():
        return None
    suites = ElementTree.parse(report).getroot().iter("testsuite")  # noqa: S314  (our own pytest wrote it)
    total = failed = skipped = 0
    for suite in suites:
        total += int(suite.get("tests", 0))
        failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped += int(suite.get("skipped", 0))
    return Counts(total - failed - skipped, failed, skipped)
