"""``query``: SQL over the lake without Spark."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table

from headrace_cli.errors import EXIT_FAILED, CommandError
from headrace_cli.lake.proof import exactly_once
from headrace_cli.lake.tables import Row, connect, rows
from headrace_cli.lake.text import json_value, text
from headrace_cli.verbs import console


def query(
    sql: str | None, lake: Path | str, *, named: str | None = None, as_json: bool = False, kafka: str | None = None
) -> int:
    """Run `sql` or a named query on the tables in `lake`, print the rows and return the exit status.

    `kafka`: brokers (HOST:PORT) with which the proof compares the tables' ends. Raises `CommandError` (bad SQL, more or less
    than one query, no tables, no answer from Kafka).
    """
    if kafka is not None and named != PROOF:
        raise CommandError(f"--kafka belongs to --named {PROOF}: it compares the tables with the topics.", status=2)
    if (sql is None) == (named is None):
        raise CommandError('Give either SQL or --named NAME: ./headrace query "select count(*) from events".', status=2)
    if sql is not None:
        answer = run(sql, lake)
        _show(answer, as_json=as_json)
        if not answer:
            console.ERR.print(f"No rows. {_last_landing(lake)}", markup=False)
        return 0
    if named is None or named not in NAMED:
        raise CommandError(f"There is no query named {named}; there is: {', '.join(NAMED)}.", status=2)
    found = NAMED[named](lake)
    if kafka is not None:
        from headrace_cli.lake import against_kafka  # only here: aiokafka takes a moment to load

        landed = {(row["topic"], row["partition"]): row["landed_to"] for row in run(against_kafka.LANDED, lake)}
        found[-1:-1] = against_kafka.compare(landed, against_kafka.held(kafka, {topic for topic, _ in landed}))
        found[-1]["ok"] = all(row["ok"] for row in found)
    _show(found, as_json=as_json)
    return 0 if all(row.get("ok", True) for row in found) else EXIT_FAILED


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
    "gaps": """
        select reason, topic, "partition", "from", "to", "to" - "from" - "rows" as lost, source, consumer, device,
            from_sequence, to_sequence, covered, landed_at, detail
        from gaps order by landed_at, topic, "partition", "from", source, device, from_sequence""",
    "hours": """
        select date_trunc('hour', received_time) as hour, source, count(*) as events
        from events group by all order by all""",
    "resends": """
        select date_trunc('hour', landed_at) as hour, topic, sum(events)::bigint as events, sum(duplicates)::bigint as collapsed
        from batches group by all having sum(duplicates) > 0 order by all""",
    "quarantine": """
        select reason, protocol, count(*) as records, min(received_time) as first, max(received_time) as last
        from quarantine group by all order by records desc, reason, protocol""",
}
"""The first queries that people need: erasures, missing offsets, events by hour, collapsed resends, quarantined records."""

NAMED: Final[Mapping[str, Callable[[Path | str], list[Row]]]] = {
    PROOF: exactly_once,
    **{name: partial(run, sql) for name, sql in QUERIES.items()},
}


def _last_landing(lake: Path | str) -> str:
    found = run("select max(landed_at) as last from batches", lake)[0]["last"] if _has_batches(lake) else None
    if found is None:
        return "Nothing has landed yet."
    seconds = (datetime.now(UTC) - found).total_seconds()
    return f"The last batch landed {seconds:,.0f} s ago."


def _has_batches(lake: Path | str) -> bool:
    return bool(run("select 1 from duckdb_views() where view_name = 'batches'", lake))


def _show(found: Sequence[Row], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps([json_value(row) for row in found], ensure_ascii=False, indent=1) + "\n")
        return
    if not console.OUT.is_terminal:
        for row in found:
            sys.stdout.write("\t".join(text(value) for value in row.values()) + "\n")
        return
    if not found:
        return
    columns = [[name, *(text(row[name]) for row in found)] for name in found[0]]
    widths = [max(cell_len(cell) for cell in column) for column in columns]
    if sum(widths) + 3 * len(widths) < console.OUT.width:
        table = Table(*found[0])
        for row in found:
            table.add_row(*(escape(text(value)) for value in row.values()))
        console.OUT.print(table)
        return
    width = max(map(len, found[0]))
    for number, row in enumerate(found, 1):  # a table would break every value
        console.OUT.print(f"row {number}", style="bold")
        for name, value in row.items():
            console.OUT.print(f"  {name:<{width}}  {text(value)}", markup=False)
