"""The tables' columns with what each means: the comments that the landing job has written into the tables."""

from __future__ import annotations

from typing import Final

from headrace_cli.lake.address import LakeAddress
from headrace_cli.lake.tables import TABLES, Row, connect, rows

NAMES: Final = ("table", "column", "type", "meaning")

_MEANING: Final = f"""
    select view_name as "table", '' as "column", '' as "type", coalesce(comment, '') as meaning, -1 as place
    from duckdb_views() where not internal and not temporary
    union all
    select table_name, column_name, lower(data_type), coalesce(comment, ''), column_index
    from duckdb_columns() where not internal and table_name in (
        select view_name from duckdb_views() where not internal and not temporary)
    order by coalesce(list_position({list(TABLES)}, "table"), {len(TABLES)}), "table", place"""  # noqa: S608
"""Temporary views are those of DuckDB's own that read an object store."""


def meaning(lake: LakeAddress | str) -> list[Row]:
    """Return a row for each table (without a column) and for each of its columns. Raises `CommandError`."""
    with connect(lake) as connection:
        return [{name: row[name] for name in NAMES} for row in rows(connection, _MEANING)]
