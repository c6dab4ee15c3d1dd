"""Says which mutant is active. A copy of it lies beside the mutated sources, and is a plugin of pytest: when all tests are
imported, it sees which of them come by which mutant, and then runs those with it active. Tests that share what they start, and
then each mutant, have a fork of that process.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

WORKERS = 2
"""Mutants that are judged at once; the first run has one more."""
SECONDS = 60.0
"""Of tests that a mutant gets, the shortest ones."""
STARTED = ("spark", "kafka")
"""Marks of tests that start much: they share it in the first run, and come last when a mutant is judged."""

active = int(os.environ.get("MUTANT", "-1"))
notes = os.environ.get("MUTANT_NOTES", "")  # begins the names of the files that a process of the first run writes
seen: set[int] = set()  # in this process, since the test began; a process that a test has started forgets none


def mutant(number: int) -> bool:
    """Returns whether this mutant is active."""
    if number not in seen:
        seen.add(number)
        with contextlib.suppress(OSError):
            _note("hits", f"{number} {Path(f'{notes}now').read_text()}\n")
    return number == active


def _note(kind: str, line: str, how: str = "a") -> None:
    if notes:
        with open(f"{notes}{kind}", how) as file:
            file.write(line)


def pytest_runtest_logstart(nodeid: str) -> None:
    _note("now", nodeid, "w")
    seen.clear()


def pytest_runtest_logreport(report: Any) -> None:
    _note("tests", f"{'inf' if report.failed else report.duration} {report.nodeid}\n")


def pytest_runtestloop(session: Any) -> bool | None:
    """Prints what becomes of each mutant that tests come by. In a fork leaves its tests to pytest."""
    global active, notes
    if session.testsfailed:  # an import
        return None
    folder, first = Path(os.environ["MUTANT_FOLDER"]), active < 0
    groups = defaultdict[str, list[Any]](list)
    for item in session.items:
        groups[next(filter(item.get_closest_marker, STARTED), str(item.path))].append(item)
    for group, status in _forked(groups if first else (), WORKERS + 1):
        if status is None:
            os.environ["MUTANT_NOTES"] = notes = f"{folder}/{os.getpid()}."
            session.items[:] = groups[group]
            return None
    chosen = _chosen(folder, {item.nodeid: item for item in session.items})
    for number, status in _forked(chosen if first else (), WORKERS):
        if status is None:
            os.environ["MUTANT"], active = number, int(number)
            if active in seen:  # the tests' imports must see it, too
                os.execv(sys.executable, sys.orig_argv)
            break
        results = {0: "survived", **dict.fromkeys((1, 2, 4), "killed")}  # 2 and 4: an import fails
        result = results.get(status, f"status {status}")
        print("mutant", number, result, file=sys.stderr, flush=True)
    session.config.option.maxfail = 1
    session.items[:] = chosen.get(str(active), [])
    return None if session.items else True


def _forked(keys: Iterable[str], workers: int) -> Iterator[tuple[str, int | None]]:
    """Yields each key and None in a process of its own, and here each key and its status as it ends."""
    waiting, running = list(keys), dict[int, str]()
    while waiting or running:
        if waiting and len(running) < workers:
            if not (child := os.fork()):
                yield waiting[0], None
            running[child] = waiting.pop(0)
        else:
            child, status = os.wait()
            yield running.pop(child), os.waitstatus_to_exitcode(status)


def _chosen(folder: Path, items: dict[str, Any]) -> dict[str, list[Any]]:
    """Returns for each mutant the shortest tests that come by it, file by file."""

    def noted(kind: str) -> list[list[str]]:
        return [line.split(" ", 1) for file in folder.glob(f"*.{kind}") for line in file.read_text().splitlines()]

    seconds, left = defaultdict[str, float](float), defaultdict[str, float](lambda: SECONDS)
    chosen = defaultdict[str, list[Any]](list)
    for took, test in noted("tests"):
        seconds[test] += float(took)
    for cost, test, number in sorted({(seconds[test] + 0.01, test, number) for number, test in noted("hits")}):
        if test in items and (cost < left[number] or not chosen[number]) and cost < math.inf:
            chosen[number].append(items[test])
            left[number] -= cost  # pytest itself takes some time for each
    for tests in chosen.values():
        files = [item.path for item in tests]
        tests.sort(key=lambda item: ([bool(item.get_closest_marker(mark)) for mark in STARTED], files.index(item.path)))
    return chosen
