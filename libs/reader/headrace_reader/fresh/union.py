"""Shows the table `events` together with the events that Kafka alone holds."""

# ruff: noqa: S608  (the SQL is assembled from constants and quoted names)
from __future__ import annotations

import asyncio
from typing import Final

import duckdb
from headrace_common.operations.errors import CommandError
from headrace_common.operations.settings import KafkaSettings

from headrace_reader.fresh.tail import TablesAloneError, Tail
from headrace_reader.proof import ENDS
from headrace_reader.tables import literal, quoted, rows

LANDED: Final = "landed_events"
"""Our own view: the rows that have landed."""
_REACH: Final = "interval 1 day"
"""An event that came so much earlier is not looked at for a repeated id: the table may hold years. The landing job looks back for
LAKE__HORIZON, an hour by default.
"""
_UNLANDED: Final = f"""
    create table unlanded_events as from _read
        anti join (select topic_id, "partition", "offset" from records where "offset" >= (select min("offset") from _read))
        using (topic_id, "partition", "offset")
        anti join (select distinct unnest(ids) as event_id from erasures) using (event_id)
        anti join (
            select event_id from events where received_time >= (select min(received_time) from _read) - {_REACH})
        using (event_id)
        qualify row_number() over (partition by event_id order by received_time, "partition", "offset") = 1"""
"""Records that no table has: of a batch that is being written, tables have records beyond their ends."""


def add_unlanded(connection: duckdb.DuckDBPyConnection, settings: KafkaSettings, tail: Tail | None = None) -> str:
    """Adds the events behind the tables' ends to the view `events` of `tables.connect`. Call it once for a connection, with the
    `tail` of the one before, so that only new records are read.

    An id that has landed is not added again, nor one that was erased; of several new copies the first is. An added row has no
    `landed_at`, and the present day. Returns an empty text, or why nothing was added: Kafka has lost a part, or there are more
    than `tail.MOST_RECORDS` or `tail.MOST_BYTES`. Blocks until all is read. Raises `CommandError` if Kafka does not answer or
    tables are missing.
    """
    if not rows(connection, "select 1 from duckdb_views() where view_name = 'records'"):
        raise CommandError("Tables are missing: the landing job has not run yet, or --lake is wrong.")
    ends = {(row["topic_id"], row["partition"]): row["landed_to"] for row in rows(connection, ENDS)}
    topic = literal(settings.events_topic)
    known = rows(connection, f"select 1 from batches where topic = {topic} limit 1")
    tail = tail or Tail()
    try:
        asyncio.run(tail.look(settings, ends, known=bool(known)))
    except TablesAloneError as error:
        return str(error)
    connection.register("_tail", tail.rows)
    where = f"{topic} as topic, {literal(tail.topic_id)} as topic_id, current_date as day"
    connection.execute(f"create view _read as select *, {where} from _tail")
    _add(connection)
    connection.unregister("_tail")
    return ""


def _add(connection: duckdb.DuckDBPyConnection) -> None:
    """Puts a view of both in the place of the view `events`, with its comments."""
    about = rows(connection, "select comment from duckdb_views() where view_name = 'events'")[0]["comment"]
    columns = rows(connection, "select column_name as name, comment from duckdb_columns() where table_name = 'events'")
    connection.execute(_UNLANDED)
    connection.execute("drop view _read")
    connection.execute(f"alter view events rename to {LANDED}")
    connection.execute(f"create view events as from {LANDED} union all by name from unlanded_events")
    connection.execute(f"comment on view events is {literal(about or '')}")
    connection.execute(f"comment on view {LANDED} is 'not stored: the rows of events that have landed'")
    for column in columns:
        said = literal(column["comment"] or "")
        connection.execute(f"comment on column events.{quoted(column['name'])} is {said}")
