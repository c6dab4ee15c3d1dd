"""Values as Spark's SQL writes them."""

from __future__ import annotations


def quoted(value: str) -> str:
    """`value` as a literal of Spark's SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
