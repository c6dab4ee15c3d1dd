"""What ``./headrace test`` says of a failed test."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from headrace_cli.ground import ROOT
from headrace_cli.verbs.test import MOST_RERUNS

UNSTEADY = """\
import pytest

@pytest.mark.parametrize("number", range({failures}))
def test_it(number, before=set()):
    if number not in before:
        before.add(number)
        raise AssertionError("unsteady")
"""


def test_a_failed_test_is_run_once_more_and_named(tmp_path: Path) -> None:
    """At most three of a run, and none that a seed has made. Here as the project's own run."""
    contract = [f"tests/contract/{name}.py" for name in ("__init__", "embedded", "topic", "waiting")]
    for name in ("pyproject.toml", "tests/__init__.py", "tests/conftest.py", "tests/tiers.py", *contract):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    for folder, failures in (("sample", MOST_RERUNS + 1), ("simulation", 1)):
        (tmp_path / "tests" / folder).mkdir()
        (tmp_path / "tests" / folder / f"test_{folder}.py").write_text(UNSTEADY.format(failures=failures))
    options = ("--reruns=1", f"--max-suite-reruns={MOST_RERUNS}", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert f"2 failed, {MOST_RERUNS} passed, {MOST_RERUNS} rerun" in done.stdout, done.stdout + done.stderr
    again = re.findall("failed, and was run once more: tests/(.*?)/", done.stdout)
    assert again == ["sample"] * MOST_RERUNS
    assert done.stdout.count("AssertionError: unsteady") >= MOST_RERUNS + 2
