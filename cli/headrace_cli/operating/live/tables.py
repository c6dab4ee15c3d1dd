"""Read the tables: how many rows, which gaps, and where the event with an id is. Blocks: call it in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import duckdb

from headrace_cli.ground import CommandError
from headrace_cli.lake.address import LakeAddress, without_secrets
from headrace_cli.lake.tables import connect, first_line
from headrace_cli.operating.live.looks import Gap, TablesLook

SECONDS: Final = 20.0
"""A query that takes longer is broken off."""
MEMORY: Final = "512MB"

_ROWS: Final = """select coalesce(sum(events), 0), coalesce(sum(quarantined), 0), epoch(max(landed_at)) from batches"""
_GAPS: Final = """
    select reason, count(*), sum(case when reason = 'logjam' then to_sequence - from_sequence else "to" - "from" - "rows" end)
    from gaps where not coalesce(covered, false) and reason <> 'joined' group by reason order by reason"""
_ROW: Final = """
    select protocol, stream, source, epoch(received_time) as received, topic, "partition", "offset", epoch(landed_at) as landed
    from {table} where {column} = ? order by received_time, "offset" limit 1"""
_BATCH: Final = """
    select epoch, batch from batches
    where topic = ? and "partition" = ? and "from" <= ? and "to" > ? order by landed_at limit 1"""
_LANDED: Final = """select topic, "partition", max("to") from batches group by all"""


@contextmanager
def _open(lake: LakeAddress) -> Iterator[duckdb.DuckDBPyConnection]:
    with connect(lake, threads=1, memory=MEMORY) as connection:
        timer = threading.Timer(SECONDS, connection.interrupt)
        timer.daemon = True
        timer.start()
        try:
            yield connection
        except duckdb.Error as error:
            raise CommandError(
                f"The tables in {lake} cannot be read: {without_secrets(first_line(str(error)))}"
            ) from error
        finally:
            timer.cancel()


def look(lake: LakeAddress) -> TablesLook:
    """Ask the tables of batches and of gaps, which are small. What is wrong is in the look."""
    try:
        with _open(lake) as connection:
            events, quarantined, landed = connection.execute(_ROWS).fetchone() or (0, 0, None)
            gaps = [
                Gap(reason, int(rows), None if lost is None else int(lost))
                for reason, rows, lost in connection.execute(_GAPS).fetchall()
            ]
            return TablesLook("", {"events": int(events), "quarantine": int(quarantined)}, landed, gaps)
    except CommandError as error:
        return TablesLook(str(error))


def find(lake: LakeAddress, identity: str) -> Mapping[str, Any] | None:
    """Return the row of the event with this id and its batch; None if there is none. Raises `CommandError`."""
    with _open(lake) as connection:
        for table, column in (("events", "event_id"), ("quarantine", "id")):
            found = _first(connection, _ROW.format(table=table, column=column), [identity])
            if found is not None:
                place = [found["topic"], found["partition"], found["offset"], found["offset"]]
                batch = _first(connection, _BATCH, place) or {"epoch": None, "batch": None}
                return {"table": table, **found, **batch}
    return None


def _first(connection: duckdb.DuckDBPyConnection, sql: str, values: Sequence[object]) -> dict[str, Any] | None:
    """Return the first row by the names of its columns; None if there is none."""
    result = connection.execute(sql, values)
    names, row = [column[0] for column in result.description or ()], result.fetchone()
    return None if row is None else dict(zip(names, row, strict=True))


def landed_to(lake: LakeAddress) -> dict[tuple[str, int], int]:
    """Return where the tables end: the first offset of each partition that has not landed. Raises `CommandError`."""
    with _open(lake) as connection:
        return {(topic, number): int(to) for topic, number, to in connection.execute(_LANDED).fetchall()}
