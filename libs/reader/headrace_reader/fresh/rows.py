"""Turns Kafka's records into rows of `events`, by the same rules of the contract as the landing job. Pure."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from aiokafka import ConsumerRecord
from headrace_common.record.contract import EVENT_RULES, JSON, TYPE_PREFIX, EventHeader

from headrace_reader.tables import Row

_COLUMNS: Final = {
    EventHeader.ID: "event_id", EventHeader.SOURCE: "source", EventHeader.SUBJECT: "stream", EventHeader.TIME: "event_time_text",
    EventHeader.CONTENT_TYPE: "content_type", EventHeader.ATTRIBUTES: "attributes",
}  # fmt: skip


def event(record: ConsumerRecord[Any, Any]) -> Row | None:
    """Returns a row; None for a record with a fault, which will land in `quarantine`.

    Of times that are no RFC 3339 the landing job knows a few more: an event with such a time is missing here until it has landed.
    """
    try:
        found = [(EventHeader(name), (value or b"").decode()) for name, value in record.headers if name in EVENT_RULES]
        texts = dict(found)
        is_json = texts.get(EventHeader.CONTENT_TYPE) == JSON.decode()
        body = record.value.decode() if is_json and record.value is not None else None
    except UnicodeDecodeError:
        return None
    missing = EVENT_RULES.keys() - texts.keys() - {EventHeader.ATTRIBUTES}
    if record.value is None or missing or len(texts) < len(found):
        return None
    said = texts.get(EventHeader.TIME, "")
    moment = instant(said)
    loose = moment is not None and len(said) >= 20 and said[10] == "T"
    if not all(EVENT_RULES[name].allows(text) or (name is EventHeader.TIME and loose) for name, text in found):
        return None
    return {
        **dict.fromkeys(_COLUMNS.values()), **{_COLUMNS[name]: text for name, text in found if name in _COLUMNS},
        "protocol": texts[EventHeader.TYPE][len(TYPE_PREFIX) :].partition(".")[0], "event_time": moment,
        "received_time": received(record.timestamp), "body": body, "payload": None if is_json else record.value,
        "partition": record.partition, "offset": record.offset,
    }  # fmt: skip


def instant(said: str) -> datetime | None:
    """Returns a time of RFC 3339, in microseconds; None if there is no such time from the year 1 to 9999."""
    try:
        found = datetime.fromisoformat(said)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def received(timestamp: int) -> datetime:
    """Returns when a record was received, by its Unix time in milliseconds: any producer writes one, which may be any number.

    1970 stands for what has no date.
    """
    with suppress(ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(timestamp / 1000, UTC)
    return datetime.fromtimestamp(0, UTC)
