"""The lake's tables as DuckDB views: it reads the Parquet files that Delta's log lists, and writes nothing.

In a folder DuckDB reads the files. From an object store deltalake does, which hands their rows over.

A connection sees one version of each table. `batches` is loaded first. So a query may see rows of an unfinished batch, but
never a line in `batches` without its rows. `erasures` is loaded last: events that it lacks
were not deleted from the others.
"""

# ruff: noqa: S608  (the SQL is assembled from constants and quoted names)
from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import duckdb
from arro3.core import Table
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from headrace_common.operations.errors import CommandError
from headrace_lake.configuration.places import unreadable
from headrace_lake.tables.properties import APP_ID, ERASED_APP, RETAINED_APP, strange_features

from headrace_reader.address import OPTIONS, LakeAddress, located, trouble, without_secrets

TABLES: Final = ("batches", "events", "quarantine", "duplicates", "gaps", "erasures")
_ERASURES: Final = """
    erasure varchar, requested_by varchar, reason varchar, "table" varchar, topic varchar, topic_id varchar, "partition" bigint,
    "rows" bigint, offsets bigint[], ids varchar[], landed_at timestamptz, erased_at timestamptz"""
"""The columns of `erasures`, which is not there before the first one."""

RETAINED: Final = "kept_from"
"""Our own table: (table, from), the first moment whose rows retention has kept, as the job said in the table's log."""
TRANSACTIONS: Final = "transactions"
"""Our own table: (table, version), the last of our transactions in each table, or -1."""

_RECORDS: Final = """
    select 'events' as "where", topic_id, "partition", "offset", event_id from events
    union all select 'quarantine', topic_id, "partition", "offset", id from quarantine
    union all select 'duplicates', topic_id, "partition", "offset", event_id from duplicates
    union all select 'erasures', topic_id, "partition", unnest(offsets), null from erasures"""
"""Our own view, which says where the record of a place is."""

Row = dict[str, Any]


def connect(lake: LakeAddress, **configuration: Any) -> duckdb.DuckDBPyConnection:
    """Returns an in-memory DuckDB with a view of each table. It can read the lake's files and nothing else.

    `configuration`: settings of DuckDB, as ``threads`` and ``memory_limit``, which bound its use of this machine.
    """
    place = located(lake)
    if isinstance(place, Path):
        place = place.absolute()
        if (part := unreadable(str(place))) is not None:
            raise CommandError(f"{place} cannot be read: rename the folder, so that its path has no {part}.")
    connection = duckdb.connect(":memory:", config=configuration)
    connection.execute("set TimeZone = 'UTC'")
    connection.execute("set enable_progress_bar = false")  # it goes to the standard output, among the rows
    connection.execute(f'create table {RETAINED} ("table" varchar, "from" timestamptz)')
    connection.execute(f'create table {TRANSACTIONS} ("table" varchar, version bigint)')
    found = [name for name in TABLES if _view(connection, place, name)]
    if not found:
        raise CommandError(f"There are no tables in {place}: the landing job has not run yet, or --lake is wrong.")
    if "erasures" not in found:
        connection.execute(f"create table _no_erasures ({_ERASURES})")
        connection.execute("create view erasures as from _no_erasures")
        connection.execute("comment on view erasures is 'nothing was erased yet'")
    if {"events", "quarantine", "duplicates"} <= {*found}:
        connection.execute(f"create view records as {_RECORDS}")
        connection.execute("comment on view records is 'not stored: where the record of each place is'")
    if isinstance(place, Path):
        connection.execute(f"set allowed_directories = [{literal(str(place))}]")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")
    return connection


def _view(connection: duckdb.DuckDBPyConnection, place: LakeAddress, name: str) -> bool:
    """Makes the view `name`; returns False if the table is missing."""
    path = f"{place}/{name}"
    try:
        table = DeltaTable(path, storage_options=None if isinstance(place, Path) else OPTIONS)
    except TableNotFoundError:
        return False
    except Exception as error:
        why = first_line(str(error)) if isinstance(place, Path) else trouble(error)
        raise CommandError(f"The table {path} cannot be read: {why.rstrip('.')}.") from error
    _refuse_strange(path, table)
    _note_transactions(connection, name, table)
    if isinstance(place, Path):
        selected = _of_files(connection, name, table, _files(place / name, table))
    else:
        selected = _of_store(connection, path, name, table)
    try:
        connection.execute(f"create view {quoted(name)} as {selected}")
    except duckdb.Error as error:  # a file is gone
        raise CommandError(f"The table {path} cannot be read: {first_line(str(error))}") from error
    _comment(connection, name, table)
    return True


def _of_files(connection: duckdb.DuckDBPyConnection, name: str, table: DeltaTable, files: list[str]) -> str:
    """Returns a query for the rows of `files`. Their columns are those of the table: older files lack newer ones."""
    connection.register(f"{name}_in_the_log", Table.from_batches([], schema=table.schema().to_arrow()))
    selected = f"select * from {name}_in_the_log"
    if not files:
        return selected
    listed = ", ".join(map(literal, files))
    hive = bool(table.metadata().partition_columns)
    return (
        f"{selected} union all by name from read_parquet([{listed}], union_by_name = true, hive_partitioning = {hive})"
    )


def _of_store(connection: duckdb.DuckDBPyConnection, path: str, name: str, table: DeltaTable) -> str:
    """Returns a query for the rows that deltalake reads."""
    try:
        connection.register(f"{name}_in_the_store", table.to_pyarrow_dataset())
    except Exception as error:
        raise CommandError(f"The table {path} cannot be read: {trouble(error).rstrip('.')}.") from error
    return f"select * from {name}_in_the_store"


def _comment(connection: duckdb.DuckDBPyConnection, name: str, table: DeltaTable) -> None:
    """Gives the view the comments that the landing job has written into the table."""
    if about := table.metadata().description:
        connection.execute(f"comment on view {quoted(name)} is {literal(about)}")
    for field in table.schema().fields:
        if said := field.metadata.get("comment"):
            connection.execute(f"comment on column {quoted(name)}.{quoted(field.name)} is {literal(str(said))}")


def _files(path: Path, table: DeltaTable) -> list[str]:
    """Returns the files that the table's log lists. deltalake writes their folder as in a URL."""
    root = len(table.table_uri.removeprefix("file://"))
    return [str(path / uri.removeprefix("file://")[root:]) for uri in table.file_uris()]


def _refuse_strange(path: str, table: DeltaTable) -> None:
    """Raises `CommandError` if the table has a feature with which the listed files hold other rows than they say."""
    protocol = table.protocol()
    strange = strange_features(
        {
            "minReaderVersion": protocol.min_reader_version,
            "readerFeatures": protocol.reader_features,
            "writerFeatures": protocol.writer_features,
        }
    )
    if strange:
        raise CommandError(
            f"The table {path} has the feature {' and '.join(strange)}, which this version does not read: rows would be"
            " shown that are not there. Query it with Spark."
        )


def _note_transactions(connection: duckdb.DuckDBPyConnection, name: str, table: DeltaTable) -> None:
    """Fills our own tables from the transactions of the table `name`."""
    if (days := table.transaction_version(RETAINED_APP)) is not None:
        connection.execute(f"insert into {RETAINED} values (?, to_timestamp(86400 * ?::bigint))", [name, days])
    last = table.transaction_version(ERASED_APP if name == "erasures" else APP_ID)
    connection.execute(f"insert into {TRANSACTIONS} values (?, ?)", [name, -1 if last is None else last])


def rows(connection: duckdb.DuckDBPyConnection, sql: str) -> list[Row]:
    """Returns the rows of one query. Names that come again get a number.

    Raises `CommandError` if `sql` is wrong, more than one, or more than a query. Ctrl-C ends it: in the main thread DuckDB hears
    that late or never.
    """
    try:
        _only_reads(sql)
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(lambda: connection.execute(sql).fetchall())
            try:
                found = running.result()
            except KeyboardInterrupt:
                connection.interrupt()
                raise
    except (duckdb.Error, OverflowError) as error:  # an interval that Python does not have
        said = re.sub(r' Did you mean "_\w*"\?', "", first_line(str(error)))  # names of ours, which nobody should ask
        raise CommandError(without_secrets(said)) from error
    names = _unique([column[0] for column in connection.description or []])
    return [dict(zip(names, values, strict=True)) for values in found]


def _only_reads(sql: str) -> None:
    statements = duckdb.extract_statements(sql)
    if len(statements) != 1:
        raise CommandError(f"One query at a time, not {len(statements)}.", status=2)
    if (kind := statements[0].type) != duckdb.StatementType.SELECT:
        raise CommandError(
            f"Only queries are allowed, not {kind.name}: the landing job alone writes the lake.", status=2
        )


def _unique(names: Sequence[str]) -> list[str]:
    """Returns `names`, with a number appended to repeated ones."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        count = seen.get(name, 0)
        seen[name] = count + 1
        result.append(f"{name}_{count}" if count else name)
    return result


def first_line(message: str) -> str:
    """Returns the part of DuckDB's message that precedes the query, as one line."""
    return " ".join(message.split("\n\n", 1)[0].split())


def literal(text: str) -> str:
    """Returns `text` as a text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def quoted(text: str) -> str:
    """Returns `text` as a name in SQL."""
    return '"' + text.replace('"', '""') + '"'
