"""One check of the proof, and the row that says whether it holds."""

# ruff: noqa: S608  (the SQL is assembled from constants and quoted names)
from __future__ import annotations

import duckdb

from headrace_reader.tables import RETAINED, Row, rows
from headrace_reader.text import compact


def dropped(line: str) -> str:
    """Returns SQL: retention may have dropped rows that a `line` of `batches` covers."""
    return f"""exists (from {RETAINED} k where {line}.landed_at < k."from")"""


def checked(connection: duckdb.DuckDBPyConnection, check: str, sql: str) -> Row:
    """Returns a row that says whether `check` holds, and what contradicts it first: a row of `sql`."""
    return judged(check, rows(connection, f"select * from ({sql}) limit 1000"))


def judged(check: str, wrong: list[Row]) -> Row:
    """Returns a row that says whether `check` holds: nothing is `wrong`."""
    detail = f"{len(wrong)} contradict it, the first: {compact(wrong[0])}" if wrong else ""
    return {"check": check, "ok": not wrong, "detail": detail}
