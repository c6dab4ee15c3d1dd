"""pytest's plugin for the first run: tells the switch which test runs, and writes how long each takes, and whether it fails.

MUTANT_MAP is the folder of its files.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Generator
from pathlib import Path

import pytest

WORKER = Path(os.environ["MUTANT_MAP"]) / os.environ.get("PYTEST_XDIST_WORKER", "alone")
os.environ["MUTANT_HITS"] = f"{WORKER}.hits"  # before the switch is imported
seen: set[int] = importlib.import_module("headrace_mutants").seen
failed: set[str] = set()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    Path(f"{WORKER}.hits.now").write_text(item.nodeid)
    seen.clear()
    began = time.monotonic()
    result = yield
    found = "failed" if item.nodeid in failed else "passed"
    with open(f"{WORKER}.tests", "a") as file:
        file.write(f"{time.monotonic() - began:.3f} {found} {item.nodeid}\n")
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        failed.add(report.nodeid)
