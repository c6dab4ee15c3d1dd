"""``python -m tests.gate``: puts small faults into a copy of the checkout, and says how many of them the quick tests notice.

Each fault, a mutant, is in the copy behind a switch: one run of the tests says which of them come by which mutant, and then those
run with it active. Other arguments go to pytest in the first run. Status 1: a smaller share of a folder's is killed than `BAR`
says.
"""

from __future__ import annotations

import argparse
import math
import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from headrace_cli.ground import ROOT
from headrace_cli.machine.jars import jars
from headrace_cli.machine.java import java_home

from tests.gate import switch
from tests.gate.source import Mutant, chosen, write

BAR: Final = {
    "cli": (19, 40), "libs/common": (47, 59), "libs/reader": (13, 16), "live": (6, 18), "services/courier": (14, 17),
    "services/forward": (21, 27), "services/logjam": (21, 26), "services/lumberjack": (16, 21), "services/segment": (27, 33),
    "services/otlp": (18, 18), "services/syslog": (17, 18), "spark_jobs": (24, 43),
}  # fmt: skip
"""How many mutants of each folder were killed, of how many."""
WORKERS: Final = 2
"""Mutants that are judged at once; the first run has one more."""
SECONDS: Final = 60.0
"""Of tests that a mutant gets, the shortest ones."""
MUTE: Final = (
    "cli/test_launcher.py", "common/test_decisions.py", "common/test_native.py", "containers", "gate", "helm", "release",
    "simulation/test_mutants.py", "test_docs.py", "test_house.py",
)  # fmt: skip
"""Tests that run none of the sources, read them as text, or mutate them themselves."""


class Copy:
    """Sources that have mutants in them, beside their tests, in `folder`/copy. After the first run: how many seconds each test
    takes, and which of those that passed come by each mutant.
    """

    def __init__(self, folder: Path, python: str, environment: dict[str, str]) -> None:
        self.folder = folder
        self._command = [python, "-m", "pytest", "--tier=quick", "-q"]
        self._environment = environment
        self.seconds: dict[str, float] = {}
        self.hits: set[tuple[int, str]] = set()

    def _pytest(self, *words: str, limit: float = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs it, and shows what it says unless the run has a limit of seconds."""
        return subprocess.run(
            ["timeout", "-k1", str(limit), *self._command, *words], cwd=self.folder / "copy", text=True,
            env={**self._environment, **variables}, stdout=subprocess.PIPE if limit else None, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def look(self, workers: int, selection: list[str]) -> None:
        """Runs the quick tier, or a selection of it, with no mutant active."""
        spread = ["-n", str(workers), "--dist=loadfile", "--no-loadscope-reorder", "--reruns=1", "--max-suite-reruns=9"]
        left_out = [f"--ignore=tests/{name}" for name in MUTE]
        self._pytest("-p", "headrace_mutants", *spread, *left_out, *selection, MUTANT_MAP=str(self.folder))
        parts, hits = (
            [line.split(" ", 1) for file in self.folder.glob(kind) for line in file.read_text().splitlines()]
            for kind in ("gw*.tests", "gw*.hits")
        )
        for seconds, test in parts:
            self.seconds[test] = self.seconds.get(test, 0) + float(seconds)
        self.hits = {(int(number), test) for number, test in hits if self.seconds.get(test, math.inf) < math.inf}

    def judge(self, number: int) -> str:
        """Returns what becomes of a mutant when the shortest tests run that come by it, file by file, the shortest first."""
        kept, files, left = list[str](), defaultdict[str, float](float), SECONDS  # a file's tests share what they start
        for seconds, test in sorted((self.seconds[test], test) for hit, test in self.hits if hit == number):
            if (cost := seconds + 0.01) < left or not kept:  # pytest itself takes some time for each
                kept.append(test)
                files[test.partition("::")[0]] += cost
                left -= cost
        if not kept:
            return "no test"
        kept.sort(key=lambda test: (files[test.partition("::")[0]], test))
        (listed := self.folder / f"{number}.txt").write_text("\n".join(kept))
        words = ["-x", "--tb=no", "-p", "no:cacheprovider", f"@{listed}"]
        ended = self._pytest(*words, limit=80 + 5 * (SECONDS - left), MUTANT=str(number))
        if ended.returncode in (1, 2, 124, 137) or "found no collectors" in ended.stdout:  # no import, or no end
            return "killed"
        return f"status {ended.returncode}" if ended.returncode else "survived"


def copied(folder: Path, mutants: list[Mutant]) -> Copy:
    """Copies what git knows in the checkout, and gives it an environment: that of the checkout, but for our packages."""
    root = folder / "copy"
    subprocess.run(["git", "clone", "-q", ROOT, root], check=True)
    if changed := subprocess.check_output(["git", "diff", "--binary", "HEAD"], cwd=ROOT):
        subprocess.run(["git", "apply"], cwd=root, input=changed, check=True)
    write(root, mutants)
    shutil.copyfile(switch.__file__, root / "libs/common/headrace_mutants.py")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / ".venv"], check=True)
    os.environ.pop("HEADRACE_VENV", None)  # the copy's launcher is to name the copy's environment
    launcher = runpy.run_path(str(root / "headrace"))
    (site,) = root.glob(".venv/lib/python3*/site-packages")
    (site / "headrace.pth").write_text("\n".join([*launcher["parts"](), sysconfig.get_path("purelib"), ""]))
    Path(launcher["STAMP"]).write_text(launcher["fingerprint"]())
    for name in ("kafka", "spark"):
        jars(name)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return Copy(folder, launcher["venv_python"](), {**kept, "JAVA_HOME": str(java_home())})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gate", description=__doc__)
    parser.add_argument("--count", type=int, help="how many mutants of each folder (as many as the bar has)")
    parser.add_argument("--folder", action="append", choices=BAR, help="of these folders alone; may be repeated")
    given, selection = parser.parse_known_args()
    folders = given.folder or list(BAR)
    mutants = [mutant for each in folders for mutant in chosen(ROOT, each, given.count or BAR[each][1])]
    results: dict[str, list[str]] = {folder: [] for folder in folders}
    with tempfile.TemporaryDirectory(prefix="gate-") as folder, ThreadPoolExecutor(WORKERS) as pool:
        copy = copied(Path(folder), mutants)
        copy.look(WORKERS + 1, selection)
        for mutant, result in zip(mutants, pool.map(copy.judge, range(len(mutants))), strict=True):
            print(f"{result:9} {mutant}", flush=True)
            results[mutant.folder].append(result)
    low = False
    for name, found in results.items():
        killed, bar = found.count("killed"), BAR[name]
        print(f"{name}: {killed} of {len(found)} killed, the bar is {bar[0]} of {bar[1]}")
        low = low or killed * bar[1] < bar[0] * len(found)
    return int(low)


if __name__ == "__main__":
    sys.exit(main())
