"""``query``: SQL over the lake without Spark."""

from __future__ import annotations

import asyncio
import csv
import json
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import duckdb
import typer
from headrace_reader.logjam import LOSSES as LOGJAM_LOSSES
from headrace_reader.proof import exactly_once
from headrace_reader.tables import TABLES, Row, connect, rows
from headrace_reader.text import json_value, printable, text
from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table

from headrace_cli import console
from headrace_cli.ground import DEFAULT_STATE, EXIT_FAILED, CommandError, check_known
from headrace_cli.options import KafkaOption, LakeOption, StateOption, examples

if TYPE_CHECKING:
    from headrace_common.operations.settings import KafkaSettings
    from headrace_reader.fresh.tail import Tail

app = typer.Typer()


@app.command(
    epilog=examples(
        './headrace query "select stream, count(*) from events group by all"',
        "./headrace query --named exactly-once --lake s3://bucket/lake",
        './headrace query "from events where day = today()" --csv > today.csv',
        './headrace query --fresh "from events order by received_time desc limit 5"',
        "./headrace query --named schema",
    )
)
def query(
    sql: Annotated[
        str | None,
        typer.Argument(
            help="One SQL query; the tables are events, quarantine, duplicates, batches, gaps and erasures. Without one,"
            " a line is a query."
        ),
    ] = None,
    state: StateOption = DEFAULT_STATE,
    lake: LakeOption = None,
    named: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Run a prepared query: exactly-once (the proof), schema, gaps, losses (of Logjam), hours, resends, quarantine,"
            " rejects or erasures.",
        ),
    ] = None,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh", help="Also show events that are in Kafka and have not landed yet; each query looks anew."
        ),
    ] = False,
    kafka: KafkaOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print an array of objects.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, with the names.")] = False,
) -> int:
    """Query the lake with DuckDB's SQL. With --named exactly-once, the exit status is 1 if the proof fails."""
    from headrace_cli.stack.reach import kafka_settings  # here, because the help needs no Kafka

    place = lake or state / "lake"
    if as_json and as_csv:
        raise CommandError("--json and --csv: name one of them.", status=2)
    if sql is not None and named is not None:
        raise CommandError("Give either SQL or --named NAME.", status=2)
    if fresh and named == PROOF:
        raise CommandError(f"--fresh: {PROOF} is about what has landed.", status=2)
    settings = kafka_settings(state, kafka) if fresh else None
    if sql is None and named is None:
        if as_json or as_csv:
            raise CommandError("--json and --csv need SQL or --named NAME.", status=2)
        return _shell(place, settings)
    check_known("--named", [named] if named is not None else (), NAMED)
    found = exactly_once(place) if named == PROOF else run(QUERIES.get(named or "", sql or ""), place, settings)
    if as_json:
        print(json.dumps([json_value(row) for row in found], ensure_ascii=False, indent=1))
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([list(found[0]), *([text(value) for value in row.values()] for row in found)] if found else [])
    else:
        _show(found)
    if named == PROOF and not all(row["ok"] for row in found):
        return EXIT_FAILED
    if not found:
        console.ERR.print(f"No rows. {_last_landing(place)}" if sql is not None else "No rows.", markup=False)
    return 0


def run(sql: str, lake: Path | str, fresh: KafkaSettings | None = None, tail: Tail | None = None) -> list[Row]:
    """Return the rows of one query over the tables in `lake`; with `fresh`, also over what is only in Kafka there: `tail` keeps
    what was read of that before.

    Raises `CommandError` as `query` does.
    """
    with connect(lake) as connection:
        if fresh is not None:
            from headrace_reader.fresh.union import add_unlanded  # it takes half a second

            from headrace_cli.stack.reach import check_reachable

            asyncio.run(check_reachable(fresh))
            if why := add_unlanded(connection, fresh, tail):
                console.ERR.print(f"Only what has landed: {why}.", markup=False)
        return _rows(connection, sql)


def _rows(connection: duckdb.DuckDBPyConnection, sql: str) -> list[Row]:
    """Return the rows of one query. Raises `CommandError`, with a hint where a client's own field is taken for a column."""
    try:
        return rows(connection, sql)
    except CommandError as error:
        column = _UNKNOWN.search(str(error))
        if column is None:
            raise
        field = next(filter(None, column.groups()))
        hint = f"What clients sent is in body: body->>'$.{field}'."
        raise CommandError(f"{error} {hint}", status=error.status) from error


def _shell(place: Path | str, fresh: KafkaSettings | None) -> int:
    """Answer one query a line until the input ends, over one look at the tables; with `fresh` each query looks anew."""
    tail = None
    if fresh is not None:
        from headrace_reader.fresh.tail import Tail

        tail = Tail()
    with connect(place) as connection:
        while True:
            try:
                sql = input("headrace> " if sys.stdin.isatty() else "")
            except EOFError:
                return 0
            try:
                if sql.strip():
                    _show(_rows(connection, sql) if fresh is None else run(sql, place, fresh, tail))
            except CommandError as error:
                console.ERR.print(str(error), markup=False)


PROOF: Final = "exactly-once"
_UNKNOWN: Final = re.compile(
    r"""column "(\w+)" not found|column named "(\w+)"|[Cc]ould not find key "(\w+)"|extract field '(\w+)'"""
)
"""What DuckDB says of a name that no table has."""
QUERIES: Final = {
    "erasures": """
        select erasure, min(erased_at) as erased_at, any_value(requested_by) as requested_by, any_value(reason) as reason,
            "table", topic, "partition", sum("rows")::bigint as rows, count(topic) as batches
        from erasures group by erasure, "table", topic, "partition" order by erased_at, erasure, "table", topic, "partition\"""",
    "gaps": """
        select reason, topic, "partition", "from", "to", "to" - "from" - "rows" as lost, landed_at
        from gaps order by landed_at, topic, "partition", "from\"""",
    "losses": f"{LOGJAM_LOSSES} order by received_time, source, device, from_sequence",
    "hours": """
        select date_trunc('hour', received_time) as hour, source, count(*) as events
        from events group by all order by all""",
    "resends": """
        select date_trunc('hour', landed_at) as hour, topic_id, "partition", count(*) as collapsed
        from duplicates group by all order by all""",
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

_LAST_LANDED: Final = """
    select max(landed_at) filter ("from" < "to") as last, (select count(*) from quarantine) as bad from batches"""
"""Lines that cover no offset are of a claim: nothing landed then."""


def _last_landing(lake: Path | str) -> str:
    there = run("select 1 from duckdb_views() where view_name = 'batches'", lake)
    found = run(_LAST_LANDED, lake)[0] if there else {}
    if found.get("last") is None:
        return "Nothing has landed yet."
    ago = (datetime.now(UTC) - found["last"]).total_seconds()
    return f"The last batch landed {ago:,.0f} s ago; quarantine has {found['bad']:,} records."


def _show(found: Sequence[Row]) -> None:
    """Print a table, or record by record where the terminal has no room for it: it would break every value. In a pipe, tabs.

    No control character of a client is printed anywhere.
    """
    out = console.OUT
    if not found or not out.is_terminal:
        for row in found:
            print("\t".join(printable(text(value)) for value in row.values()))
        return
    names = list(found[0])
    cells = [[_cell(row[name]) for name in names] for row in found]
    widths = [max(map(cell_len, column)) for column in zip(names, *cells, strict=True)]
    if sum(widths) + 3 * len(widths) < out.width:
        table = Table(*names)
        for row_of_cells in cells:
            table.add_row(*map(escape, row_of_cells))
        out.print(table)
        return
    width = max(map(len, names))
    for number, row_of_cells in enumerate(cells, 1):
        out.print(f"row {number}", style="bold")
        for name, cell in zip(names, row_of_cells, strict=True):
            out.print(f"  {name:<{width}}  {cell}", markup=False)


def _cell(value: object) -> str:
    """Return the value in lines, without what would move the cursor: clients wrote most of it."""
    return "\n".join(map(printable, text(value).split("\n")))
