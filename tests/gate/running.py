"""Runs tests over a copy of the checkout whose sources have the mutants in them."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headrace_cli.ground import ROOT
from headrace_cli.machine.jars import jars
from headrace_cli.machine.java import java_home

from tests.gate import switch
from tests.gate.source import Mutant, write

SECONDS: Final = 60.0
"""Of tests that a mutant gets, the shortest ones."""
MUTE: Final = (
    "cli/test_launcher.py", "common/test_decisions.py", "common/test_native.py", "containers", "gate", "helm", "release",
    "simulation/test_mutants.py", "test_developer_files.py", "test_docs.py", "test_house.py", "test_tiers.py",
)  # fmt: skip
"""Tests that run none of the sources, read them as text, or mutate them themselves."""


@dataclass
class Copy:
    """Sources that have mutants in them, beside their tests. After the first run: how many seconds each test takes, which have
    failed, and which of the others come by each mutant.
    """

    folder: Path
    root: Path
    python: str
    environment: dict[str, str]
    seconds: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    hits: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    def pytest(self, *words: str, limit: float | None = None, **variables: str) -> tuple[int, str]:
        """Returns pytest's status, and its failures unless it shows them itself. A run that exceeds its seconds has failed."""
        process = subprocess.Popen(
            [self.python, "-m", "pytest", "--tier=quick", "-q", "-rfE", *words], cwd=self.root, start_new_session=True, text=True,
            env={**self.environment, **variables}, stdout=subprocess.PIPE if limit else None, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            said, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return 1, "time is over"
        return process.returncode, "\n".join(re.findall(r"^(?:FAILED|ERROR).*", said or "", re.MULTILINE))

    def look(self, workers: int, selection: list[str]) -> None:
        """Runs the quick tier, or a selection of it, with no mutant active."""
        spread = ["-n", str(workers), "--dist=loadfile", "--no-loadscope-reorder", "--reruns=1", "--max-suite-reruns=9"]
        left_out = [f"--ignore=tests/{name}" for name in MUTE]
        self.pytest("-p", "tests.gate.plugin", *spread, *left_out, *selection, MUTANT_MAP=str(self.folder))
        for line in (line for file in self.folder.glob("*.tests") for line in file.read_text().splitlines()):
            seconds, result, test = line.split(" ", 2)
            self.seconds[test] = float(seconds)
            self.failed += [test] * (result == "failed")
        for line in (line for file in self.folder.glob("*.hits") for line in file.read_text().splitlines()):
            number, _, test = line.partition(" ")
            if test in self.seconds and test not in self.failed:
                self.hits[int(number)].add(test)

    def chosen(self, number: int) -> list[str]:
        """Returns the tests that a mutant gets: each function's shortest case first, then each one's next."""
        counted, ranks = Counter[str](), {}
        for test in sorted(self.hits[number], key=self.seconds.__getitem__):
            counted[function := test.partition("[")[0]] += 1
            ranks[test] = counted[function]
        kept: list[str] = []
        left = SECONDS
        for test in sorted(ranks, key=ranks.__getitem__):
            if (cost := self.seconds[test] + 0.01) < left or not kept:  # pytest itself takes some time for each
                kept.append(test)
                left -= cost
        files = [test.partition("::")[0] for test in kept]  # a file's tests share what they start
        return sorted(kept, key=lambda test: files.index(test.partition("::")[0]))

    def judge(self, number: int, tests: list[str]) -> tuple[str, str]:
        """Returns whether these tests, in this order, kill a mutant, and which one does."""
        (listed := self.folder / f"{number}.txt").write_text("\n".join(tests))
        patience = 20 + 5 * max(self.seconds[test] for test in tests)
        limit = 60 + patience + 5 * sum(self.seconds[test] for test in tests)
        words = ["-x", "--tb=no", "-p", "no:cacheprovider", f"--timeout={patience:.0f}", f"@{listed}"]
        status, said = self.pytest(*words, limit=limit, MUTANT=str(number))
        if status in (1, 2) or "found no collectors" in said:  # also where a module cannot be imported
            return "killed", said
        return f"status {status}" if status else "survived", said


def copied(folder: Path, numbered: dict[int, Mutant]) -> Copy:
    """Copies what git knows in the checkout, and gives it an environment: that of the checkout, but for our packages."""
    root = folder / "copy"
    subprocess.run(["git", "clone", "-q", ROOT, root], check=True)
    if changed := subprocess.check_output(["git", "diff", "--binary", "HEAD"], cwd=ROOT):
        subprocess.run(["git", "apply"], cwd=root, input=changed, check=True)
    write(root, numbered)
    shutil.copyfile(switch.__file__, root / "libs/common/headrace_mutants.py")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / ".venv"], check=True)
    os.environ.pop("HEADRACE_VENV", None)  # the copy's launcher is to name the copy's environment
    launcher = runpy.run_path(str(root / "headrace"))
    (site,) = root.glob(".venv/lib/python3*/site-packages")
    (site / "headrace.pth").write_text("\n".join([*launcher["parts"](), sysconfig.get_path("purelib"), ""]))
    Path(launcher["STAMP"]).write_text(launcher["fingerprint"]())
    told = subprocess.check_output(
        [launcher["venv_python"](), "-c", "import headrace_common as it; print(it.__file__)"]
    )
    assert told.decode().startswith(str(root)), told
    for name in ("kafka", "spark"):
        jars(name)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return Copy(folder, root, launcher["venv_python"](), {**kept, "JAVA_HOME": str(java_home())})
