"""``top``: a live table of the services, from their metrics and their readiness."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from headrace_cli.ground import EXIT_FAILED, CommandError
from headrace_cli.operating.exposition import parts_of, scrape_all
from headrace_cli.verbs import console
from headrace_cli.verbs.console import duration
from headrace_reader.text import printable
from rich.console import Group
from rich.live import Live
from rich.text import Text

from headrace_live.looks import Figures, Lake, Look, ReceiverLook
from headrace_live.model import Model
from headrace_live.words import short

ONCE_SECONDS: Final = 1.0
"""Time between the two looks of `--once`."""
LEFT_OUT: Final = ("wait", "p50", "fresh", "budget", "oldest", "conn", "p99", "quar")
"""Columns that a narrow terminal does without, in this order."""
PROBLEMS: Final = 8
"""Most problems below the table."""
_FIGURES: Final = {
    "events_per_second": ("events", "landed"), "connections": ("connections", ""), "ack_p50": ("p50", ""), "ack_p99": ("p99", ""),
    "budget_used_bytes": ("used", ""), "pending": ("pending", ""), "oldest": ("oldest", ""),
    "quarantined": ("quarantined", "quarantined"), "lag": ("", "lag"), "freshness_p50": ("", "p50"), "freshness_p95": ("", "p95"),
}  # fmt: skip
"""Each figure's field of a receiver, and of the landing job."""

Row = dict[str, Any]


def top(path: Path, urls: Sequence[str], *, once: bool, as_json: bool, every: float) -> int:
    """Show the table until Ctrl-C, or one table. Return 0, or 1 if, at last, a part did not answer or was not ready.

    Raises `CommandError` (nothing runs, no terminal to draw on, an invalid address).
    """
    parts, model = asyncio.run(parts_of(path, urls)), Model()

    def look() -> list[Row]:
        return rows(model.add(Look(time.monotonic(), time.time(), scrape_all(parts))))

    if as_json and not once:
        raise CommandError("--json prints one document: add --once.", status=2)
    if once:
        look()
        time.sleep(ONCE_SECONDS)
        found = look()
        if as_json:
            sys.stdout.write(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        else:
            console.OUT.print(table(found, console.OUT.width), soft_wrap=False)
        return _status(found)
    if not console.OUT.is_terminal:
        raise CommandError("top draws on a terminal: --once prints one table.", status=2)
    found = []
    try:
        look()
        with Live(console=console.OUT, auto_refresh=False) as live:
            while True:
                time.sleep(every if found else min(every, ONCE_SECONDS))
                found = look()
                live.update(
                    Group(table(found, console.OUT.width), Text(f"every {every:g} s; Ctrl-C ends", style="dim")),
                    refresh=True,
                )
    except KeyboardInterrupt:
        return _status(found)


def rows(figures: Figures) -> list[Row]:
    """Return a row for each service over all its replicas, the landing job's last. None: it has no such figure, or nothing
    happened.
    """
    services: list[ReceiverLook | Lake] = [*figures.receivers, figures.lake]
    return [_row(found) for found in services if found.replicas]


def _row(found: ReceiverLook | Lake) -> Row:
    replicas = found.replicas
    several = len(replicas) > 1
    row: Row = {
        "service": "lake" if isinstance(found, Lake) else found.service,
        "parts": len(replicas),
        "ready": found.ready,
        **dict.fromkeys(_FIGURES),
        "problems": [f"{each.url}: {each.note}" if several else each.note for each in replicas if each.note],
    }
    if not all(each.state == "away" for each in replicas):
        row |= {name: getattr(found, its[isinstance(found, Lake)], None) for name, its in _FIGURES.items()}
    return row


def _status(found: Sequence[Row]) -> int:
    return 0 if all(row["ready"] == row["parts"] for row in found) else EXIT_FAILED


def table(found: Sequence[Row], width: int) -> Group:
    """Return the table, without the columns for which `width` has no room, and the problems below it."""
    columns: dict[str, list[Text]] = {
        "service": [Text(printable(row["service"])) for row in found],
        "ready": [
            Text(f"{row['ready']}/{row['parts']}", "green" if row["ready"] == row["parts"] else "bold red")
            for row in found
        ],
        **{name: [Text(shown(row[figure])) for row in found] for name, (figure, shown) in _COLUMNS.items()},
    }
    left = list(LEFT_OUT)
    while left and sum(max(len(name), *map(len, cells)) + 1 for name, cells in columns.items()) > width:
        del columns[left.pop(0)]
    shown = console.table(*(name if name == "service" else f">{name}" for name in columns))
    shown.padding = (0, 1, 0, 0)
    for cells in zip(*columns.values(), strict=True):
        shown.add_row(*cells)
    problems = [Text(f"{row['service']}: {printable(text)}", style="red") for row in found for text in row["problems"]]
    more = [Text(f"… and {len(problems) - PROBLEMS} more")] if len(problems) > PROBLEMS else []
    gone = LEFT_OUT[: len(LEFT_OUT) - len(left)]
    narrow = [Text(f"left out: {', '.join(gone)}", style="dim")] if gone else []
    return Group(shown, *problems[:PROBLEMS], *more, *narrow)


def _narrow(time: float | None) -> str:
    return duration(time).replace(" ", "")


_COLUMNS: Final = {
    "conn": ("connections", short), "ev/s": ("events_per_second", short), "p50": ("ack_p50", _narrow),
    "p99": ("ack_p99", _narrow), "budget": ("budget_used_bytes", short), "wait": ("pending", short),
    "oldest": ("oldest", _narrow), "quar": ("quarantined", short), "lag": ("lag", short), "fresh": ("freshness_p50", _narrow),
}  # fmt: skip
"""Columns of the table, their figures, and how these are shown."""
