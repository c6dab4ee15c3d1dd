"""Values as literals of Spark's SQL."""

from __future__ import annotations

from typing import Final

OURS: Final = "_headrace_"
"""Begins the names of columns that rows have on their way to a table: no column of a table begins so."""


def quoted(value: str) -> str:
    """Returns `value` as a string literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
