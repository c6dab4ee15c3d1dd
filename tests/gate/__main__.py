"""``python -m tests.gate``: puts small faults into a copy of the checkout, and says how many of them the quick tests notice.

Each fault, a mutant, is in the copy behind a switch: one run of the tests says which of them come by which mutant, and then those
run with it active. Other arguments go to pytest. Status 1: a smaller share of a folder's is killed than `BAR` says.
"""

from __future__ import annotations

import argparse
import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headrace_cli.ground import ROOT
from headrace_cli.machine.java import java_home

from tests.gate import switch
from tests.gate.source import Mutant, chosen, write

BAR: Final = {
    "cli": (37, 40), "libs/common": (47, 59), "libs/reader": (13, 16), "live": (16, 18), "services/courier": (16, 17),
    "services/forward": (23, 27), "services/logjam": (22, 26), "services/lumberjack": (20, 21), "services/segment": (31, 33),
    "services/otlp": (17, 18), "services/syslog": (17, 18), "spark_jobs": (24, 43),
}  # fmt: skip
"""How many mutants of each folder were killed, of how many."""
MUTE: Final = (
    "cli/test_launcher.py", "common/test_decisions.py", "common/test_native.py", "containers", "gate", "helm", "release",
    "simulation/test_mutants.py", "test_docs.py", "test_house.py",
)  # fmt: skip
"""Tests that run none of the sources, read them as text, or mutate them themselves."""


def judged(root: Path, python: str, environment: dict[str, str], *selection: str) -> Iterator[tuple[int, str]]:
    """Yields what becomes of each mutant of a copy, as it is known; nothing of one that no test of a selection comes by."""
    command = [python, "-m", "pytest", "--tier=quick", "-n0", "-p", "no:cacheprovider", "-p", "headrace_mutants"]
    command += ["--timeout=200", "--timeout-method=thread", *(f"--ignore=tests/{name}" for name in MUTE), *selection]
    told, quiet = {**environment, "MUTANT_FOLDER": str(root.parent)}, subprocess.DEVNULL
    with subprocess.Popen(command, cwd=root, env=told, stdout=quiet, stderr=subprocess.PIPE, text=True) as running:
        for line in running.stderr or ():
            if line.startswith("mutant "):
                _, number, result = line.strip().split(" ", 2)
                yield int(number), result


def copied(root: Path, mutants: list[Mutant]) -> tuple[str, dict[str, str]]:
    """Copies what git knows in the checkout, and gives it an environment: that of the checkout, but for our packages."""
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
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return launcher["venv_python"](), {**kept, "JAVA_HOME": str(java_home())}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gate", description=__doc__)
    parser.add_argument("--folder", action="append", choices=BAR, help="of these folders alone; may be repeated")
    given, selection = parser.parse_known_args()
    mutants = [mutant for folder in given.folder or BAR for mutant in chosen(ROOT, folder, BAR[folder][1])]
    results = dict.fromkeys(mutants, "no test")
    with tempfile.TemporaryDirectory(prefix="gate-") as folder:
        root = Path(folder) / "copy"
        python, environment = copied(root, mutants)
        for number, result in judged(root, python, environment, *selection):
            results[mutants[number]] = result
            print(f"{result:9} {mutants[number]}", flush=True)
    low = False
    for folder in given.folder or BAR:
        found = {mutant: result for mutant, result in results.items() if mutant.folder == folder}
        print(*(f"no test   {mutant}\n" for mutant, result in found.items() if result == "no test"), sep="", end="")
        killed, bar = [*found.values()].count("killed"), BAR[folder]
        print(f"{folder}: {killed} of {len(found)} killed, the bar is {bar[0]} of {bar[1]}")
        low = low or killed * bar[1] < bar[0] * len(found)
    return int(low)


if __name__ == "__main__":
    sys.exit(main())
