"""Terminal output of the verbs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.table import Table

OUT: Final = Console(highlight=False, soft_wrap=True)
ERR: Final = Console(stderr=True, highlight=False, soft_wrap=True)

_MARKS: Final = {"good": "[green]✓[/green]", "bad": "[red]✗[/red]", "note": " "}
_PLAIN: Final = {"good": "ok ", "bad": "!! ", "note": "   "}


@contextmanager
def unheard() -> Iterator[None]:
    """Let output of the block fail without an error: to a closed terminal, a pipe whose reader has ended, a full disk."""
    try:
        yield
    except SystemExit:  # rich's, of a pipe, and it has done the same
        pass
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def line(name: str, kind: str, text: str) -> None:
    """Print one line: a mark for `kind` (good, bad, note), a name and a text."""
    mark = _MARKS[kind] if OUT.is_terminal else _PLAIN[kind].strip().ljust(2)
    OUT.print(f"{mark} {name:<10}", end=" ")
    OUT.print(text, markup=False)


def table(*columns: str) -> Table:
    """Return a table without lines, and without a head if no column has a name. A name begins with ``>`` if the column is set to
    the right, with ``~`` if its text may break.
    """
    heads = any(column.lstrip(">~") for column in columns)
    made = Table(box=None, pad_edge=False, header_style="bold", show_header=heads)
    for column in columns:
        right, breaks = column.startswith(">"), column.startswith("~")
        made.add_column(
            column.lstrip(">~"),
            justify="right" if right else "left",
            no_wrap=not breaks,
            overflow="fold" if breaks else "ellipsis",
        )
    return made


def count(number: int, what: str) -> str:
    """Return ``1 event``, ``2 events``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def format_size(count: float) -> str:
    """Return a number of bytes with a readable unit."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def duration(seconds: float | None) -> str:
    """Return a time as ``45 ms``, ``1.2 s`` or what `span` says."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{max(1, seconds * 1000):.0f} ms" if seconds else "0"
    return f"{seconds:.1f} s" if seconds < 100 else span(seconds)


def span(seconds: float) -> str:
    """Return a time as ``12 s``, ``3 min`` or ``2 h``, rounded down."""
    whole = int(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h"
