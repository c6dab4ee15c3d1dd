"""Reads the tables, and follows one event by its id: from its record on Kafka to its row.

Functions that ask the tables block: call them in a thread.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import duckdb
from aiokafka.errors import KafkaError
from headrace_cli.ground import CommandError
from headrace_cli.operating.records import Row, StoredRecord, event, reject
from headrace_cli.operating.topic import TopicReader, newest, reading
from headrace_common.kafka.client import explain
from headrace_common.operations.errors import HeadraceError
from headrace_common.operations.settings import KafkaSettings
from headrace_reader.address import LakeAddress, without_secrets
from headrace_reader.tables import connect, first_line
from headrace_reader.text import printable

from headrace_live.looks import GapTotal, TablesLook

ID: Final = re.compile(r"[ud]\.[0-9a-f]{32}")
NEWEST: Final = "newest"
"""Asks for the event that was stored last."""
RECORDS: Final = 100_000
"""Most records of each topic that are looked through."""
SECONDS: Final = 10.0
"""Most time for that."""
_ID_HEADERS: Final = ("ce_id", "id")
Place = tuple[str, int]


@dataclass
class EventTrace:
    """The places of the event. `record`: its place on Kafka; `row`: in the tables; `said`: the unknown places, and why."""

    id: str
    record: Mapping[str, Any] | None = None
    row: Mapping[str, Any] | None = None
    said: list[str] = field(default_factory=list)


async def follow(identity: str, settings: KafkaSettings | None, lake: LakeAddress | None) -> EventTrace:
    """Look in the tables first, then among the records that have not landed. Reads only; takes half a minute at most.

    Raises `CommandError` for an invalid id.
    """
    if identity != NEWEST and ID.fullmatch(identity) is None:
        raise CommandError(
            "An id is d. or u. and 32 hex digits, as in column event_id and in what tap shows.", status=2
        )
    way = EventTrace(identity)
    landed: Mapping[Place, int] | None = None
    if lake is not None and identity != NEWEST:
        landed = await _in_tables(way, lake)
    elif lake is None:
        way.said.append("The tables cannot be read from here.")
    if settings is None:
        way.said.append("Kafka is not known here.")
        return way
    try:
        async with asyncio.timeout(2 * SECONDS + 10):
            await _on_kafka(way, settings, landed)
    except (KafkaError, TimeoutError, HeadraceError) as error:
        way.said.append(f"Kafka: {explain(error) if isinstance(error, KafkaError) else error or 'it does not answer'}")
    if identity == NEWEST and lake is not None and way.record is not None:
        await _in_tables(way, lake)
    if way.record is not None and way.row is None and lake is not None:
        way.said.append("It is stored, and has not landed yet.")
    if way.record is None and way.row is None:
        way.said.append("It was not found: it never came, has another id, or Kafka has deleted it before it landed.")
    return way


async def _in_tables(way: EventTrace, lake: LakeAddress) -> Mapping[Place, int] | None:
    try:
        way.row = await asyncio.to_thread(find, lake, way.id)
        return await asyncio.to_thread(landed_to, lake) if way.row is None else None
    except CommandError as error:
        way.said.append(str(error))
        return None


async def _on_kafka(way: EventTrace, settings: KafkaSettings, landed: Mapping[Place, int] | None) -> None:
    """Look on the events topic, then among the quarantine."""
    for quarantine in (False, True):
        if way.record is None and not (quarantine and way.id == NEWEST):
            async with reading(settings, quarantine=quarantine) as reader:
                if way.row is None:
                    await _among(way, reader, landed or {})
                elif way.row["topic"] == reader.topic:
                    await _at(way, reader, way.row["partition"], way.row["offset"])


async def _at(way: EventTrace, reader: TopicReader, partition: int, offset: int) -> None:
    await reader.begin_from({partition: offset})
    records: list[StoredRecord] = []
    while not records and not await reader.at_the_end():
        records = await reader.step()
    for record in records:
        if (record.partition, record.offset) == (partition, offset):
            _note(way, record)
            return
    way.said.append("Kafka has deleted its record since it landed, as its retention says.")


async def _among(way: EventTrace, reader: TopicReader, landed: Mapping[Place, int]) -> None:
    """Look among the records that have not landed, for the id or for the newest."""
    share = 1 if way.id == NEWEST else RECORDS // reader.partitions
    places = {number: max(landed.get((reader.topic, number), 0), end - share) for number, end in reader.ends.items()}
    await reader.begin_from(places)
    sought = way.id.encode()

    def wanted(record: StoredRecord) -> bool:
        return way.id == NEWEST or any(key in _ID_HEADERS and value == sought for key, value in record.headers)

    found = await newest(reader, 1, wanted, SECONDS)
    if found.records:
        _note(way, found.records[0])
    elif found.late:
        way.said.append("There is too much on Kafka that has not landed: it was not looked through to the end.")


def _note(way: EventTrace, record: StoredRecord) -> None:
    quarantined = any(key == "reason" for key, _ in record.headers)
    row: Row = (reject if quarantined else event)(record)
    way.id = str(row.get("event_id") or row.get("id") or way.id) if way.id == NEWEST else way.id
    way.record = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "time": record.timestamp / 1000,
        "bytes": record.size,
        **{
            name: printable(str(row[name]))[:200]
            for name in ("protocol", "stream", "source", "event_time", "reason")
            if row.get(name) is not None
        },
    }


QUERY_SECONDS: Final = 20.0
"""A query that takes longer is broken off."""
MEMORY: Final = "512MB"

_ROWS: Final = """
    select greatest(0, coalesce(sum(records), 0) - any_value(bad) - any_value(again)), any_value(bad),
        epoch(max(landed_at) filter ("from" < "to"))
    from batches, (select count(*) as bad from quarantine), (select count(*) as again from duplicates)"""
_GAPS: Final = """
    select reason, count(*), sum(case when reason = 'logjam' then to_sequence - from_sequence else "to" - "from" - "rows" end)
    from gaps group by reason order by reason"""
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
        timer = threading.Timer(QUERY_SECONDS, connection.interrupt)
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
    """Ask the tables that are small, all but events. What is wrong is in the look."""
    try:
        with _open(lake) as connection:
            events, quarantined, landed = connection.execute(_ROWS).fetchone() or (0, 0, None)
            gaps = [
                GapTotal(reason, int(rows), None if lost is None else int(lost))
                for reason, rows, lost in connection.execute(_GAPS).fetchall()
            ]
            return TablesLook("", {"events": int(events), "quarantine": int(quarantined)}, landed, gaps)
    except CommandError as error:
        return TablesLook(str(error))


def find(lake: LakeAddress, identity: str) -> Mapping[str, Any] | None:
    """Return the row of the event with this id and its batch; or None. Raises `CommandError`."""
    with _open(lake) as connection:
        for table, column in (("events", "event_id"), ("quarantine", "id")):
            found = _first(connection, _ROW.format(table=table, column=column), [identity])
            if found is not None:
                place = [found["topic"], found["partition"], found["offset"], found["offset"]]
                batch = _first(connection, _BATCH, place) or {"epoch": None, "batch": None}
                return {"table": table, **found, **batch}
    return None


def _first(connection: duckdb.DuckDBPyConnection, sql: str, values: Sequence[object]) -> dict[str, Any] | None:
    """Return the first row by the names of its columns, or None."""
    result = connection.execute(sql, values)
    names, row = [column[0] for column in result.description or ()], result.fetchone()
    return None if row is None else dict(zip(names, row, strict=True))


def landed_to(lake: LakeAddress) -> dict[tuple[str, int], int]:
    """Return where the tables end: the first offset of each partition that has not landed. Raises `CommandError`."""
    with _open(lake) as connection:
        return {(topic, number): int(to) for topic, number, to in connection.execute(_LANDED).fetchall()}
