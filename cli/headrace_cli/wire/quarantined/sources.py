"""Rows of quarantine, one after the other, from the lake or from the topic."""

# ruff: noqa: S608  (the SQL is assembled from constants; values are parameters)
from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import duckdb
import orjson
from headrace_common.operations.settings import KafkaSettings

from headrace_cli.errors import CommandError
from headrace_cli.lake.address import LakeAddress, without_secrets
from headrace_cli.lake.tables import connect, first_line
from headrace_cli.operating.watch.filters import BEGINNING
from headrace_cli.operating.watch.records import Row, reject
from headrace_cli.operating.watch.topic import reading

_COLUMNS: Final = (
    "id", "reason", "detail", "protocol", "stream", "source", "part", "parts", "sha256", "attributes", "received_time",
    "topic", "partition", "offset",
)  # fmt: skip
_AT_ONCE: Final = 100


@dataclass(frozen=True)
class Wanted:
    """Which rows: all of what is given must hold. `name`: of one item."""

    reasons: Sequence[str] = ()
    protocols: Sequence[str] = ()
    since: datetime | None = None
    until: datetime | None = None
    name: str = ""


def of_lake(lake: LakeAddress, wanted: Wanted, *, content: bool) -> Iterator[Row]:
    """Rows of the quarantine table, the newest item first, its parts in order. Without `content` only the sizes of the bytes.

    Raises `CommandError` if there is no table, or it cannot be read.
    """
    conditions: list[tuple[str, Any]] = []
    if wanted.reasons:
        conditions.append(("list_contains(?, reason)", list(wanted.reasons)))
    if wanted.protocols:
        conditions.append(("list_contains(?, protocol)", list(wanted.protocols)))
    if wanted.since is not None:
        conditions.append(("received_time >= ?", wanted.since))
    if wanted.until is not None:
        conditions.append(("received_time < ?", wanted.until))
    place = """(topic || '-' || "partition" || '-' || "offset")"""
    if wanted.name:
        conditions.append((f"? in (id, {place})", wanted.name))
    where = " and ".join(condition for condition, _ in conditions) or "true"
    selected = (
        ", ".join(f'"{column}"' for column in _COLUMNS) + (", raw" if content else "") + ", octet_length(raw) as size"
    )
    newest = f"max(received_time) over (partition by coalesce(id, {place}), sha256)"
    order = f'{newest} desc, id, sha256, part, received_time, "partition", "offset"'
    with connect(lake) as connection:
        try:
            found = connection.execute(
                f"select {selected} from quarantine where {where} order by {order}", [value for _, value in conditions]
            )
            names = [column[0] for column in found.description or ()]
            while rows := found.fetchmany(_AT_ONCE):
                for values in rows:
                    row = dict(zip(names, values, strict=True))
                    yield {**row, "attributes": _parsed(row["attributes"])}
        except duckdb.Error as error:
            why = without_secrets(first_line(str(error)))
            raise CommandError(f"The quarantine table in {lake} cannot be read: {why}") from error


def _parsed(text: object) -> Any:
    try:
        return orjson.loads(text) if isinstance(text, str) else None
    except orjson.JSONDecodeError:
        return text


def of_topic(settings: KafkaSettings, wanted: Wanted, *, content: bool) -> Iterator[Row]:
    """Rows of the quarantine topic as it is now, the oldest first. Raises `CommandError`, `DeliveryError`."""
    rows = _of_topic(settings, wanted, content=content)

    async def following() -> Row | None:
        return await anext(rows, None)

    with asyncio.Runner() as runner:
        try:
            while (row := runner.run(following())) is not None:
                yield row
        finally:
            runner.run(rows.aclose())


async def _of_topic(settings: KafkaSettings, wanted: Wanted, *, content: bool) -> AsyncGenerator[Row, None]:
    async with reading(settings, quarantine=True) as reader:
        await reader.begin_at(wanted.since or BEGINNING)
        while not await reader.at_the_end():
            for record in await reader.step():
                row = reject(record)
                if reader.before_the_end(record) and _passes(row, wanted):
                    yield row if content else {**row, "raw": None, "size": len(record.value or b"")}


def _passes(row: Row, wanted: Wanted) -> bool:
    place = f"{row['topic']}-{row['partition']}-{row['offset']}"
    return (
        (not wanted.reasons or row.get("reason") in wanted.reasons)
        and (not wanted.protocols or row.get("protocol") in wanted.protocols)
        and (wanted.since is None or row["received_time"] >= wanted.since)
        and (wanted.until is None or row["received_time"] < wanted.until)
        and (not wanted.name or wanted.name in (row.get("id"), place))
    )
