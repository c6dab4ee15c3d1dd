"""SQL over the lake, without Spark: DuckDB reads the Parquet files that Delta's log lists. Nothing is written.

Each query sees one version of each table, `batches` loaded first: rows of a batch that is under way may be there already,
but never a batch without its rows.
"""

# ruff: noqa: S608  (what is put into SQL here is our own, or quoted)
from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from functools import partial
from pathlib import Path
from typing import Any, Final

import duckdb
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from headrace_lake.properties import RETAINED_FROM
from rich.table import Table

from headrace_cli import console
from headrace_cli.errors import EXIT_FAILED, CommandError

TABLES: Final = ("batches", "events", "quarantine", "gaps")
_EXPLAIN: Final = re.compile(r"\s*explain\s+(analyze\s+)?(\([^)]*\)\s*)?", re.IGNORECASE)
_TYPES: Final = {
    "string": "VARCHAR",
    "long": "BIGINT",
    "integer": "INTEGER",
    "short": "SMALLINT",
    "byte": "TINYINT",
    "double": "DOUBLE",
    "float": "FLOAT",
    "boolean": "BOOLEAN",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
}

_NO_GAPS: Final = ", ".join(
    f'null::{kind} as "{name}"'
    for kind, names in {
        "varchar": ("reason", "topic", "topic_id", "source", "consumer", "detail"),
        "bigint": ("partition", "from", "to", "rows", "device", "from_sequence", "to_sequence", "epoch"),
        "boolean": ("covered",),
        "timestamptz": ("landed_at",),
    }.items()
    for name in names
)

Row = dict[str, Any]


@dataclass(frozen=True)
class Check:
    """One line of the proof: a name, and a query that returns what contradicts it."""

    name: str
    sql: str


_EVER: Final = "9223372036854775807"
_COVERED: Final = f"""
    select topic_id, "partition", "from", "to", epoch, batch, false as is_gap from batches
    union all
    select topic_id, "partition", "from", coalesce("to", {_EVER}), epoch, null, true from gaps
    where "from" is not null and "partition" is not null"""
"""What the lake knows of each offset: landed with a batch, or lost and accepted; a gap without an end: the topic is gone."""
_RANGES: Final = f"""
    select *, row_number() over (partition by topic_id, "partition" order by "from", "to") as number,
        lag("to") over (partition by topic_id, "partition" order by "from", "to") as previous
    from ({_COVERED})"""
_ENDS: Final = f"""select topic_id, "partition", max("to") as landed_to from ({_COVERED}) group by all"""
_KEPT: Final = "kept_from"  # a table of ours: from which day on retention has kept a table


def _rows_agree(table: str, column: str) -> str:
    """Rows of `table` against what `batches` says of each range; rows of a batch under way lie beyond every range.

    Where retention may have dropped rows, their number is not compared: in ranges landed before the day that the table is
    kept from, or on it, since a batch that was interrupted has rows of an earlier day than its line in `batches`.
    """
    return f"""
    with covered as ({_COVERED}),
    landed as (
        select r.topic_id, r."partition", r."offset" from {table} r join ({_ENDS}) e using (topic_id, "partition")
        where r."offset" < e.landed_to),
    placed as (
        select l.topic_id, l."partition", c."from", count(*) as found, count(distinct l."offset") as different
        from landed l asof left join covered c
            on l.topic_id = c.topic_id and l."partition" = c."partition" and l."offset" >= c."from"
        where c.is_gap is not true group by all)
    select topic_id, "partition", "from", b.{column} as said, coalesce(found, 0) as found, coalesce(different, 0) as different
    from batches b full join placed p using (topic_id, "partition", "from")
    where coalesce(found, 0) <> coalesce(different, 0) or b.{column} is distinct from coalesce(found, 0)
        and not exists (from {_KEPT} k where k."table" = '{table}' and b.landed_at < k."from" + interval 1 day)"""


def _rows_beyond(table: str) -> str:
    return f"""select count(*) from {table} r left join ({_ENDS}) e using (topic_id, "partition")
        where e.landed_to is null or r."offset" >= e.landed_to"""


_ROWS_IN_GAPS: Final = f"""
    with kept as (
        select topic_id, "partition", "offset" from events union all select topic_id, "partition", "offset" from quarantine),
    placed as (
        select g.topic_id, g."partition", g."from", g."rows" as said, count(k."offset") as found,
            count(distinct k."offset") as different
        from gaps g left join kept k on g.topic_id = k.topic_id and g."partition" = k."partition"
            and k."offset" >= g."from" and k."offset" < coalesce(g."to", {_EVER})
        where g."from" is not null and g."partition" is not null group by all)
    select * from placed
    where found <> different or found > said or said is null or (found < said and not exists (from {_KEPT}))"""


EXACTLY_ONCE: Final = (
    Check(
        "the ranges of each partition have no hole that is not in gaps, and no overlap",
        f'select topic_id, "partition", epoch, batch, is_gap, "from", "to", previous from ({_RANGES}) '
        'where "from" >= "to" or (number > 1 and "from" <> previous)',
    ),
    Check(
        "records = events + duplicates + quarantined + skipped",
        "select * from batches where records is distinct from events + duplicates + quarantined + skipped "
        'or least(events, duplicates, quarantined, skipped) < 0 or records > "to" - "from"',
    ),
    Check("the events table has what batches says, each record once", _rows_agree("events", "events")),
    Check("the quarantine table has what batches says, each record once", _rows_agree("quarantine", "quarantined")),
    Check("the gaps hold the rows that they say, each once", _ROWS_IN_GAPS),
    Check(
        "no record is in both tables",
        'select topic_id, "partition", "offset" from quarantine semi join events using (topic_id, "partition", "offset")',
    ),
)
"""The proof: every query must come back empty."""


def query(sql: str | None, lake: Path | str, *, named: str | None = None, as_json: bool = False) -> int:
    """Run `sql` or a named query on the tables in `lake` and print the rows; the exit status.

    Raises `CommandError`: bad SQL, anything but one query, no tables.
    """
    if (sql is None) == (named is None):
        raise CommandError('Give either SQL or --named NAME: ./headrace query "select count(*) from events".', status=2)
    if sql is not None:
        _show(run(sql, lake), as_json=as_json)
        return 0
    if named is None or named not in NAMED:
        raise CommandError(f"There is no query named {named}; there is: {', '.join(NAMED)}.", status=2)
    rows = NAMED[named](lake)
    _show(rows, as_json=as_json)
    return 0 if all(row.get("ok", True) for row in rows) else EXIT_FAILED


def run(sql: str, lake: Path | str) -> list[Row]:
    """The rows of one query over the tables in `lake`. Raises `CommandError` as `query`."""
    with _connected(lake) as connection:
        return _rows(connection, sql)


def exactly_once(lake: Path | str) -> list[Row]:
    """The proof that each record of the topics is in the tables once: a row per check, and one with the totals."""
    proof = []
    with _connected(lake) as connection:
        for check in EXACTLY_ONCE:
            wrong = _rows(connection, f"select * from ({check.sql}) limit 1000")
            detail = "" if not wrong else f"{len(wrong)} contradict it, the first: {_compact(wrong[0])}"
            proof.append({"check": check.name, "ok": not wrong, "detail": detail})
        totals = _rows(
            connection,
            'select count(*) as ranges, count(distinct (topic_id, "partition")) as partitions, '
            "coalesce(sum(records), 0)::bigint as records, coalesce(sum(events), 0)::bigint as events, "
            "coalesce(sum(duplicates), 0)::bigint as duplicates, coalesce(sum(quarantined), 0)::bigint as quarantined, "
            "coalesce(sum(skipped), 0)::bigint as skipped, "
            '(select coalesce(sum("to" - "from" - "rows"), 0)::bigint from gaps) as lost_offsets, '
            "(select count(*) from gaps where reason = 'recreated') as partitions_lost, "
            f"({_rows_beyond('events')}) + ({_rows_beyond('quarantine')}) as rows_of_a_batch_under_way from batches",
        )[0]
    proof.append({"check": "all of it", "ok": all(row["ok"] for row in proof), "detail": _compact(totals)})
    return proof


QUERIES: Final = {
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
"""Queries that people need first: what is missing, what came in, what was sent again, what could not be understood."""

NAMED: Final[Mapping[str, Callable[[Path | str], list[Row]]]] = {
    "exactly-once": exactly_once,
    **{name: partial(run, sql) for name, sql in QUERIES.items()},
}


def _connected(lake: Path | str) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB with a view per table, that can read the lake's files and nothing else."""
    folder = Path(lake).absolute()
    connection = duckdb.connect(":memory:")
    connection.execute("set TimeZone = 'UTC'")
    connection.execute(f'create table {_KEPT} ("table" varchar, "from" timestamptz)')
    found = [name for name in TABLES if _view(connection, folder, name)]
    if not found:
        raise CommandError(f"There are no tables in {folder}: the landing job has not run yet, or --lake is wrong.")
    if "gaps" not in found:  # tables of a version that had none
        connection.execute(f"create view gaps as select {_NO_GAPS} where false")
    connection.execute(f"set allowed_directories = [{_literal(str(folder))}]")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")
    return connection


def _view(connection: duckdb.DuckDBPyConnection, folder: Path, name: str) -> bool:
    """Makes the view `name`; False when there is no such table."""
    try:
        table = DeltaTable(str(folder / name))
    except TableNotFoundError:
        return False
    except Exception as error:
        raise CommandError(f"The table {folder / name} cannot be read: {_line(str(error))}") from error
    kept = table.metadata().configuration.get(RETAINED_FROM)
    if kept:
        connection.execute(f"insert into {_KEPT} values (?, ?)", [name, f"{kept} 00:00:00+00"])
    columns = [(field.name, _type(field.type)) for field in table.schema().fields]
    empty = ", ".join(f"null::{kind} as {_name(column)}" for column, kind in columns)
    selected = f"select {empty} where false"
    files = table.file_uris()
    if files:
        partitions = dict(columns)
        hive = ", ".join(f"{_name(key)}: {partitions[key]}" for key in table.metadata().partition_columns)
        hive = f"hive_partitioning = true, hive_types = {{{hive}}}" if hive else "hive_partitioning = false"
        listed = ", ".join(_literal(uri) for uri in files)
        # by name: older files lack the columns that came later
        selected += f" union all by name select * from read_parquet([{listed}], union_by_name = true, {hive})"
    connection.execute(f"create view {name} as {selected}")
    return True


def _type(kind: Any) -> str:
    name = str(getattr(kind, "type", ""))
    return name.upper() if name.startswith("decimal") else _TYPES.get(name, "VARCHAR")


def _rows(connection: duckdb.DuckDBPyConnection, sql: str) -> list[Row]:
    try:
        _only_reads(sql)
        result = connection.execute(sql)
        names = _distinct([column[0] for column in result.description or []])
        return [dict(zip(names, values, strict=True)) for values in result.fetchall()]
    except duckdb.Error as error:
        raise CommandError(_line(str(error))) from error


def _only_reads(sql: str) -> None:
    statements = duckdb.extract_statements(sql)
    if len(statements) != 1:
        raise CommandError(f"One query at a time, not {len(statements)}.", status=2)
    kind = statements[0].type
    if kind == duckdb.StatementType.EXPLAIN:
        return _only_reads(_EXPLAIN.sub("", sql, count=1))
    if kind != duckdb.StatementType.SELECT:
        raise CommandError(f"Only queries: the lake is written by the landing job, not by {kind.name}.", status=2)
    return None


def _distinct(names: Sequence[str]) -> list[str]:
    """`names` with a number behind those that came before."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        count = seen.get(name, 0)
        seen[name] = count + 1
        result.append(f"{name}_{count}" if count else name)
    return result


def _show(rows: Sequence[Row], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps([_plain(row) for row in rows], ensure_ascii=False, indent=1) + "\n")
        return
    if not console.OUT.is_terminal:
        for row in rows:
            sys.stdout.write("\t".join(_text(value) for value in row.values()) + "\n")
        return
    table = Table(*(rows[0] if rows else ("no rows",)))
    for row in rows:
        table.add_row(*(_text(value) for value in row.values()))
    console.OUT.print(table)


def _plain(value: Any) -> Any:
    """`value` as JSON has it: times in ISO 8601, bytes in base64, numbers that JSON lacks as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    return str(value)


def _text(value: Any) -> str:
    plain = _plain(value)
    if plain is None:
        return ""
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _compact(row: Row) -> str:
    return ", ".join(f"{name} {_text(value)}" for name, value in row.items())


def _line(message: str) -> str:
    """The part of DuckDB's message before it shows the query, on one line."""
    return " ".join(message.split("\n\n", 1)[0].split())


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
