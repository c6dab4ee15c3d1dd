"""Values as literals of Spark's SQL."""

from __future__ import annotations


def quoted(value: str) -> str:
    """Returns `value` as a string literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
