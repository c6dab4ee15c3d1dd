"""``top``: a live table of the services, from their metrics and their readiness."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.console import Group
from rich.live import Live
from rich.text import Text

from headrace_cli.ground import EXIT_FAILED, CommandError
from headrace_cli.lake.text import printable
from headrace_cli.operating.exposition import Scrape, parts_of, scrape_all
from headrace_cli.operating.watch.rates import ServiceRow, rows
from headrace_cli.verbs import console

ONCE_SECONDS: Final = 1.0
"""Time between the two looks of `--once`."""
LEFT_OUT: Final = ("wait", "p50", "fresh", "budget", "oldest", "conn", "p99", "quar")
"""Columns that a narrow terminal does without, in this order."""
PROBLEMS: Final = 8
"""Most problems below the table."""


def top(path: Path, urls: Sequence[str], *, once: bool, as_json: bool, every: float) -> int:
    """Show the table until Ctrl-C, or one table. Return 0, or 1 if, at last, a part did not answer or was not ready.

    Raises `CommandError` (nothing runs, no terminal to draw on, what is no address).
    """
    parts = parts_of(path, urls)
    if as_json and not once:
        raise CommandError("--json prints one document: add --once.", status=2)
    if once:
        before, parts = _first(parts)
        time.sleep(ONCE_SECONDS)
        found = rows(before, scrape_all(parts))
        if as_json:
            sys.stdout.write(json.dumps([asdict(row) for row in found], indent=1, ensure_ascii=False) + "\n")
        else:
            console.OUT.print(table(found, console.OUT.width), soft_wrap=False)
        return _status(found)
    if not console.OUT.is_terminal:
        raise CommandError("top draws on a terminal: --once prints one table.", status=2)
    found = []
    try:
        before, parts = _first(parts)
        with Live(console=console.OUT, auto_refresh=False) as live:
            while True:
                time.sleep(min(every, ONCE_SECONDS) if not found else every)
                after = scrape_all(parts)
                before, found = after, rows(before, after)
                live.update(
                    Group(table(found, console.OUT.width), Text(f"every {every:g} s; Ctrl-C ends", style="dim")),
                    refresh=True,
                )
    except KeyboardInterrupt:
        return _status(found)


def _first(parts: Sequence[tuple[str, str]]) -> tuple[list[Scrape], list[tuple[str, str]]]:
    """The first look, and the parts with the names that they gave."""
    found = scrape_all(parts)
    return found, [(each.service, each.url) for each in found]


def _status(found: Sequence[ServiceRow]) -> int:
    return 0 if all(row.ready == row.parts for row in found) else EXIT_FAILED


def table(found: Sequence[ServiceRow], width: int) -> Group:
    """The table, without the columns for which `width` has no room, and the problems below it."""
    columns: dict[str, list[Text]] = {
        "service": [Text(printable(row.service)) for row in found],
        "ready": [Text(f"{row.ready}/{row.parts}", "green" if row.ready == row.parts else "bold red") for row in found],
        "conn": [Text(short(row.connections)) for row in found],
        "ev/s": [Text(short(row.events_per_second)) for row in found],
        "p50": [Text(seconds(row.ack_p50)) for row in found],
        "p99": [Text(seconds(row.ack_p99)) for row in found],
        "budget": [Text(short(row.budget_used_bytes)) for row in found],
        "wait": [Text(short(row.pending)) for row in found],
        "oldest": [Text(seconds(row.oldest)) for row in found],
        "quar": [Text(short(row.quarantined), "yellow" if row.quarantined else "") for row in found],
        "lag": [Text(short(row.lag)) for row in found],
        "fresh": [Text(seconds(row.freshness_p50)) for row in found],
    }
    left = list(LEFT_OUT)
    while left and sum(max(len(name), *map(len, cells)) + 1 for name, cells in columns.items()) > width:
        del columns[left.pop(0)]
    shown = console.table(*(name if name == "service" else f">{name}" for name in columns))
    shown.padding = (0, 1, 0, 0)
    for cells in zip(*columns.values(), strict=True):
        shown.add_row(*cells)
    problems = [Text(f"{row.service}: {printable(text)}", style="red") for row in found for text in row.problems]
    more = [Text(f"… and {len(problems) - PROBLEMS} more")] if len(problems) > PROBLEMS else []
    gone = LEFT_OUT[: len(LEFT_OUT) - len(left)]
    narrow = [Text(f"left out: {', '.join(gone)}", style="dim")] if gone else []
    return Group(shown, *problems[:PROBLEMS], *more, *narrow)


def short(number: float | None) -> str:
    """As ``12.3k``, at most five characters."""
    if number is None:
        return "–"
    for unit in ("", "k", "M", "G"):
        if abs(number) < 999.5:
            return f"{number:.0f}{unit}" if not unit or number >= 99.95 else f"{number:.1f}{unit}"
        number /= 1000
    return f"{number:.0f}T"


def seconds(number: float | None) -> str:
    """As ``45ms``, ``1.2s`` or ``3m``."""
    if number is None:
        return "–"
    if number == 0:
        return "0"
    if number < 1:
        return f"{max(1, number * 1000):.0f}ms"
    return f"{number:.1f}s" if number < 100 else f"{number / 60:.0f}m"
