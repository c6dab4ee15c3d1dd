"""One check of the proof, and the row that says whether it holds."""

# ruff: noqa: S608  (the SQL is assembled from constants and quoted names)
from __future__ import annotations

from dataclasses import dataclass

import duckdb

from headrace_reader.tables import RETAINED, Row, rows
from headrace_reader.text import compact


@dataclass(frozen=True)
class ProofCheck:
    """One check of the proof: its name, and a query for the rows that contradict it."""

    name: str
    sql: str


def dropped(table: str, line: str) -> str:
    """Return SQL: retention may have dropped rows of `table` that a `line` of `batches` covers.

    Lines with a digest are of a version whose job says in the table's log what it drops.
    """
    kept = f"""k."table" = '{table}' and {line}.landed_at < k."from" and (k.by_job or {line}.digest is null)"""
    return f"exists (from {RETAINED} k where {kept})"


def checked(connection: duckdb.DuckDBPyConnection, check: ProofCheck) -> Row:
    """Return a row that says whether `check` holds, and what contradicts it first."""
    return judged(check.name, rows(connection, f"select * from ({check.sql}) limit 1000"))


def judged(check: str, wrong: list[Row]) -> Row:
    """Return a row that says whether `check` holds: nothing is `wrong`."""
    detail = f"{len(wrong)} contradict it, the first: {compact(wrong[0])}" if wrong else ""
    return {"check": check, "ok": not wrong, "detail": detail}
