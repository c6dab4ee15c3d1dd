"""Turns Kafka's records into rows of `events`, by the same rules of the contract as the landing job. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from aiokafka import ConsumerRecord
from headrace_common.record.contract import EVENT_RULES, JSON, TYPE_PREFIX, EventHeader, Rule

from headrace_reader.tables import Row

_JSON: Final = JSON.decode()
_COLUMNS: Final[dict[str, str]] = {
    EventHeader.SPECVERSION: "specversion", EventHeader.ID: "event_id", EventHeader.SOURCE: "source", EventHeader.TYPE: "type",
    EventHeader.SUBJECT: "stream", EventHeader.TIME: "event_time_text", EventHeader.CONTENT_TYPE: "content_type",
    EventHeader.ATTRIBUTES: "attributes",
}  # fmt: skip
_RULES: Final[dict[str, Rule]] = {_COLUMNS[name]: rule for name, rule in EVENT_RULES.items()}
SCHEMA: Final = pa.schema(
    {
        **dict.fromkeys(("event_id", "source", "stream", "protocol", "event_time_text", "content_type"), pa.string()),
        **dict.fromkeys(("event_time", "received_time"), pa.timestamp("us", "UTC")),
        **dict.fromkeys(("attributes", "body"), pa.string()),
        "payload": pa.binary(), "partition": pa.int32(), "offset": pa.int64(),
    }
)  # fmt: skip
"""Those columns of `events` that a record tells."""
_REQUIRED: Final = _RULES.keys() - {"attributes"}
_UNIQUE: Final = {"event_id", "event_time_text", "attributes"}
"""Differ from record to record; whether a text of another column is sound is remembered."""


def table(records: Iterable[ConsumerRecord[Any, Any]]) -> pa.Table:
    """Returns the rows of records, without those that `event` does not know."""
    return pa.Table.from_pylist([row for row in map(event, records) if row is not None], SCHEMA)


def event(record: ConsumerRecord[Any, Any]) -> Row | None:
    """Returns a row by the names of `SCHEMA`, and others; None for a record with a fault, which will land in `quarantine`.

    Of times that are no RFC 3339 the landing job knows a few more: an event with such a time is missing here until it has landed.
    """
    row: Row = {}
    for name, value in record.headers:
        if column := _COLUMNS.get(name):
            text = _allowed(column, value) if column in _UNIQUE else _remembered(column, value)
            if text is None or column in row:
                return None
            row[column] = text
    if record.value is None or not row.keys() >= _REQUIRED:
        return None
    if row["content_type"] == _JSON:
        try:
            row["body"] = record.value.decode()
        except UnicodeDecodeError:
            return None
    else:
        row["payload"] = record.value
    row["protocol"] = row["type"][len(TYPE_PREFIX) :].partition(".")[0]
    row["event_time"] = instant(row["event_time_text"])
    row["received_time"] = received(record.timestamp)
    row["partition"], row["offset"] = record.partition, record.offset
    return row


def _allowed(column: str, value: bytes | None) -> str | None:
    """Returns a header's text; None if the contract does not allow it."""
    try:
        text = (value or b"").decode()
    except UnicodeDecodeError:
        return None
    loose = column == "event_time_text" and len(text) >= 20 and text[10] == "T" and instant(text) is not None
    return text if loose or _RULES[column].allows(text) else None


_remembered = lru_cache(4096)(_allowed)


def instant(said: str) -> datetime | None:
    """Returns a time of RFC 3339, in microseconds; None if there is no such time from the year 1 to 9999."""
    try:
        found = datetime.fromisoformat(said)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def received(timestamp: int) -> datetime:
    """Returns when a record was received, by its Unix time in milliseconds, as a producer wrote it; 1970 if that is no date."""
    with suppress(ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(timestamp / 1000, UTC)
    return datetime.fromtimestamp(0, UTC)
