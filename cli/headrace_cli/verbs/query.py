"""``query``: SQL over the lake without Spark."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from headrace_reader.logjam import GAPS as LOGJAM_GAPS
from headrace_reader.proof import exactly_once
from headrace_reader.tables import TABLES, Row, connect, rows
from headrace_reader.text import printable, text
from headrace_reader.written import Output, TableFormat, write_query, write_rows
from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table

from headrace_cli.ground import DEFAULT_STATE, EXIT_FAILED, CommandError, check_known
from headrace_cli.verbs import console
from headrace_cli.verbs.options import LakeOption, StateOption, examples


def _output_of(format_: str | None, file: Path | None, *, as_json: bool) -> Output:
    """Check the options against each other. Raises `CommandError`."""
    check_known("--format", [format_] if format_ is not None else (), TableFormat)
    if as_json and format_ not in (None, TableFormat.JSON):
        raise CommandError(f"--json and --format {format_} contradict each other.", status=2)
    wanted = TableFormat.JSON if as_json else TableFormat(format_) if format_ is not None else None
    if file is not None and wanted is None and file.suffix == f".{TableFormat.PARQUET}":
        wanted = TableFormat.PARQUET
    if (wanted is TableFormat.PARQUET) != (file is not None):
        raise CommandError("--format parquet and --output FILE belong together: redirect other formats.", status=2)
    return Output(wanted, file)


app = typer.Typer()


@app.command(
    epilog=examples(
        './headrace query "select stream, count(*) from events group by all"',
        "./headrace query --named exactly-once --lake s3://bucket/lake",
        './headrace query "from events where day = today()" --output today.parquet',
        "./headrace query --named schema",
    )
)
def query(
    sql: Annotated[
        str | None, typer.Argument(help="One SQL query; the tables are events, quarantine, batches, gaps and erasures.")
    ] = None,
    state: StateOption = DEFAULT_STATE,
    lake: LakeOption = None,
    named: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Run a prepared query: exactly-once (the proof), schema, gaps, hours, resends, quarantine, rejects or erasures.",
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="table|csv|json|parquet",
            help="Default: a table on a terminal, else tabs.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the rows to this file, as Parquet.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json: an array of objects.")] = False,
) -> int:
    """Query the lake with DuckDB's SQL. With --named exactly-once, the exit status is 1 if the proof fails."""
    place = lake or state / "lake"
    wanted = _output_of(format_, output, as_json=as_json)
    if (sql is None) == (named is None):
        raise CommandError('Give either SQL or --named NAME: ./headrace query "select count(*) from events".', status=2)
    check_known("--named", [named] if named is not None else (), NAMED)
    if named == PROOF:
        proof = exactly_once(place)
        _show(proof, wanted)
        return 0 if all(row["ok"] for row in proof) else EXIT_FAILED
    count = _ask(QUERIES[named] if named is not None else sql or "", place, wanted)
    if not count:
        console.ERR.print(f"No rows. {_last_landing(place)}" if sql is not None else "No rows.", markup=False)
    return 0


def _ask(sql: str, lake: Path | str, output: Output) -> int:
    """Write the rows of `sql`; return how many."""
    if output.format in (None, TableFormat.TABLE):
        found = run(sql, lake)
        _show(found, output)
        return len(found)
    return write_query(sql, lake, output)


def run(sql: str, lake: Path | str) -> list[Row]:
    """Return the rows of one query over the tables in `lake`. Raises `CommandError` as `query` does."""
    with connect(lake) as connection:
        return rows(connection, sql)


EXAMPLE_QUERY: Final = "select event_time, stream, body from events order by landed_at desc limit 10"
PROOF: Final = "exactly-once"
QUERIES: Final = {
    "erasures": """
        select erasure, min(erased_at) as erased_at, any_value(requested_by) as requested_by, any_value(reason) as reason,
            any_value(predicate) as predicate, "table", topic, "partition", sum("rows")::bigint as rows, count("from") as batches
        from erasures group by erasure, "table", topic, "partition" order by erased_at, erasure, "table", topic, "partition\"""",
    "gaps": f"""
        select reason, topic, "partition", "from", "to", "to" - "from" - "rows" as lost, source, consumer, device,
            from_sequence, to_sequence, covered, landed_at, detail
        from ({LOGJAM_GAPS}) order by landed_at, topic, "partition", "from", source, device, from_sequence""",  # noqa: S608
    "hours": """
        select date_trunc('hour', received_time) as hour, source, count(*) as events
        from events group by all order by all""",
    "resends": """
        select date_trunc('hour', landed_at) as hour, topic, sum(events)::bigint as events, sum(duplicates)::bigint as collapsed
        from batches group by all having sum(duplicates) > 0 order by all""",
    "quarantine": """
        select reason, protocol, count(*) as records, min(received_time) as first, max(received_time) as last
        from quarantine group by all order by records desc, reason, protocol""",
    "rejects": """
        select received_time, reason, detail, protocol, source, stream, id, part, parts, octet_length(raw) as bytes,
            topic, "partition", "offset"
        from quarantine order by received_time desc, id, part, topic, "partition", "offset" desc limit 100""",
    "schema": f"""
        select "table", "column", "type", meaning from (
            select view_name as "table", '' as "column", '' as "type", coalesce(comment, '') as meaning, -1 as place
            from duckdb_views() where not internal and not temporary
            union all
            select table_name, column_name, lower(data_type), coalesce(comment, ''), column_index
            from duckdb_columns() where not internal and table_name in (
                select view_name from duckdb_views() where not internal and not temporary))
        order by coalesce(list_position({list(TABLES)}, "table"), {len(TABLES)}), "table", place""",  # noqa: S608
}
"""The first queries that people need. Temporary views are those of DuckDB's own that read an object store."""

NAMED: Final = (PROOF, *QUERIES)


def _last_landing(lake: Path | str) -> str:
    there = run("select 1 from duckdb_views() where view_name = 'batches'", lake)
    found = run("select max(landed_at) as last from batches", lake)[0]["last"] if there else None
    if found is None:
        return "Nothing has landed yet."
    return f"The last batch landed {(datetime.now(UTC) - found).total_seconds():,.0f} s ago."


def _show(found: Sequence[Row], output: Output) -> None:
    """Write rows that are there already."""
    if output.format not in (None, TableFormat.TABLE):
        write_rows(list(found[0]), found, output)
    elif output.format is None and not console.OUT.is_terminal:
        for row in found:
            sys.stdout.write("\t".join(text(value) for value in row.values()) + "\n")
    elif found:
        _table(found, fits=output.format is None)


def _table(found: Sequence[Row], *, fits: bool) -> None:
    """Draw a table; with `fits` only if the terminal has room for it: it would break every value."""
    names, out = list(found[0]), console.OUT
    cells = [[_cell(row[name]) for name in names] for row in found]
    widths = [max(map(cell_len, column)) for column in zip(names, *cells, strict=True)]
    if not fits or sum(widths) + 3 * len(widths) < out.width:
        table = Table(*names)
        for row in cells:
            table.add_row(*map(escape, row))
        out.print(table)
        return
    width = max(map(len, names))
    for number, row in enumerate(cells, 1):
        out.print(f"row {number}", style="bold")
        for name, cell in zip(names, row, strict=True):
            out.print(f"  {name:<{width}}  {cell}", markup=False)


def _cell(value: object) -> str:
    """Return the value in lines, without what would move the cursor: clients wrote most of it."""
    return "\n".join(map(printable, text(value).split("\n")))
