"""Records of both topics as rows, with the names of the lake's columns. Pure.

Shown records have no control character of a client. A record that breaks the contract is shown, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson
from headrace_common.record.contract import HEADERS, JSON, QUARANTINE_HEADERS, TYPE_PREFIX
from headrace_reader.text import json_value, printable, text
from rich.text import Text

from headrace_cli.ground import CommandError

NOW: Final = "now"
BEGINNING: Final = "beginning"
_AGO: Final = re.compile(r"(\d{1,6})(s|m|h|d)")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_moment(text: str, option: str, now: datetime) -> datetime:
    """Read an ISO 8601 time (UTC unless it names a zone), or how long ago: ``10m``. Raises `CommandError`."""
    if ago := _AGO.fullmatch(text):
        try:
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        except OverflowError:
            return datetime.min.replace(tzinfo=UTC)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"{option} {text}: expected a time such as 2026-11-23T08:00 (UTC unless it has a zone), or 30s, 10m, 2h, 1d ago"
            + (f", {NOW} or {BEGINNING}." if option == "--from" else "."),
            status=2,
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def parse_span(text: str, option: str) -> float:
    """Read how long something lasts, in seconds: ``30s``, ``5m``. Raises `CommandError`."""
    if (found := _AGO.fullmatch(text)) is None or not int(found[1]):
        raise CommandError(f"{option} {text}: expected how long, as 30s, 10m, 2h or 1d.", status=2)
    return timedelta(**{_UNITS[found[2]]: int(found[1])}).total_seconds()


LINE: Final = 2_000
"""Most characters of a value that are shown."""
_BYTES: Final = 64


def shown_value(value: Any) -> str:
    """Return JSON in one line, bytes as their text or in hex, cut to `LINE` characters."""
    if isinstance(value, bytes):
        return _shown_bytes(value)
    plain = value if isinstance(value, str) else orjson.dumps(json_value(value)).decode()
    return _cut(printable(plain))


def _shown_bytes(value: bytes) -> str:
    try:
        return _cut(printable(value.decode()))
    except UnicodeDecodeError:
        more = f" … ({len(value):,} bytes)" if len(value) > _BYTES else ""
        return value[:_BYTES].hex(" ") + more


def _cut(line: str) -> str:
    return line if len(line) <= LINE else f"{line[:LINE]} … ({len(line):,} characters)"


def pretty(row: Row) -> Text:
    """Return a line about the record and a line with its content; one more for a reason, one for attributes."""
    protocol = str(row.get("protocol", "-"))
    shown = Text(f"{row['received_time']:%H:%M:%S}.{row['received_time'].microsecond // 1000:03d} ", style="dim")
    shown.append(printable(protocol), style="cyan")
    shown.append(f" {printable(str(row.get('stream', '-')))}", style="bold")
    shown.append(f" {printable(str(row.get('source', '-')))} {row['partition']}@{row['offset']}", style="dim")
    shown.append(f" {printable(str(row.get('event_id') or row.get('id') or ''))}", style="dim")
    if "reason" in row:
        about = f"{row['reason']}, part {row.get('part')}: {row.get('detail', '')}"
        shown.append(f"\n  {printable(about)}", style="red")
    content = next(row[key] for key in ("body", "payload", "raw") if key in row)
    shown.append(f"\n  {shown_value(content)}" if content is not None else "\n  (no value)")
    if "attributes" in row:
        shown.append(f"\n  attributes {_cut(printable(text(row['attributes'])))}", style="dim")
    return shown


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record as Kafka keeps it. `timestamp`: Unix time in milliseconds, when it was stored."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    headers: Sequence[tuple[str, bytes | None]]
    value: bytes | None

    @property
    def order(self) -> tuple[int, int, int]:
        """By time, then by place."""
        return self.timestamp, self.partition, self.offset


Row = dict[str, Any]


_COLUMNS: Final = {name: name.removeprefix("ce_").replace("-", "_") for name in (*HEADERS[1:], *QUARANTINE_HEADERS)}
_COLUMNS.update(ce_subject="stream", ce_id="event_id", ce_time="event_time")
"""The lake's columns by header."""


def event(record: StoredRecord) -> Row:
    """Return a row of the events topic; `body` is parsed JSON, `payload` that of other content."""
    row = _columns(record)
    row["protocol"] = row.get("type", "").removeprefix(TYPE_PREFIX).partition(".")[0] or "-"
    try:
        if row.get("content_type") == JSON.decode():
            return row | {"body": orjson.loads(record.value or b"")}
    except orjson.JSONDecodeError:  # it breaks the contract
        pass
    return row | {"payload": record.value}


def reject(record: StoredRecord) -> Row:
    """Return a row of the quarantine topic; `raw` are the bytes of this part."""
    return _columns(record) | {"raw": record.value}


def _columns(record: StoredRecord) -> Row:
    row: Row = {
        _COLUMNS[name]: (value or b"").decode(errors="replace") for name, value in record.headers if name in _COLUMNS
    }
    if "attributes" in row:
        row["attributes"] = parsed(row["attributes"])
    place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    return {"received_time": moment(record.timestamp), **row, **place}


def moment(milliseconds: int) -> datetime:
    """Return the time in UTC of Kafka's timestamp; it may be any number, since any producer writes it."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


def as_json(row: Row) -> bytes:
    """Return the row as one line of JSON: times are ISO 8601, bytes base64."""
    return orjson.dumps(json_value(row), option=orjson.OPT_NON_STR_KEYS)


def parsed(text: object) -> Any:
    """Return the JSON that a text holds, or the text; None for anything else, or an empty text."""
    if not isinstance(text, str) or not text:
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
