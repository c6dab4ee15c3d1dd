"""Ledgers: a line of JSON for each run, in `benchmarks/results`, and beside it a table made of all of them."""

from __future__ import annotations

import fcntl
import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = ROOT / "benchmarks" / "results"

Entry = dict[str, Any]


def entries(path: Path) -> list[Entry]:
    """Returns the runs so far, the oldest first."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def end(path: Path, count: str, **which: object) -> int:
    """Returns the number of the first thing that was not run yet, of such runs; `count` says how many a run had."""
    ran = [each for each in entries(path) if which.items() <= each.items()]
    return max((each["first"] + each[count] for each in ran), default=0)


def add(path: Path, entry: Entry, table: Callable[[Sequence[Entry]], str]) -> None:
    """Adds a run and writes the table again. Another process may add one at the same time."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(entry) + "\n")
        file.flush()
        path.with_suffix(".md").write_text(table(entries(path)))


def product(*folders: str) -> str:
    """Returns the last commit that has changed one of `folders`: what is tested."""
    command = ["git", "log", "-1", "--format=%h", "--", *folders]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
