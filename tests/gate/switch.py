"""Says which mutant is active. In the first run, as a plugin of pytest's workers, notes in files of the folder MUTANT_MAP how
long each test takes, or that it failed, and which mutants it comes by. A copy of it lies beside the mutated sources.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

ACTIVE = int(os.environ.get("MUTANT", "-1"))
FOLDER, WORKER = (os.environ.get(name, "") for name in ("MUTANT_MAP", "PYTEST_XDIST_WORKER"))
FILES = f"{FOLDER}/{WORKER or 'all'}."
seen: set[int] = set()  # in this process, since the test began; a process that a test has started forgets none


def mutant(number: int) -> bool:
    """Returns whether this mutant is active."""
    if number not in seen:
        seen.add(number)
        if FOLDER:
            with contextlib.suppress(OSError), open(f"{FILES}now") as now:
                _note("hits", f"{number} {now.read()}")
    return number == ACTIVE


def _note(file: str, line: str) -> None:
    with open(FILES + file, "a") as notes:
        notes.write(f"{line}\n")


def pytest_runtest_logstart(nodeid: str) -> None:
    with open(f"{FILES}now", "w") as now:
        now.write(nodeid)
    seen.clear()


def pytest_runtest_logreport(report: Any) -> None:
    _note("tests", f"{'inf' if report.failed else report.duration} {report.nodeid}")
