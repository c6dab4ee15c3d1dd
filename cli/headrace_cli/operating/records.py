"""Records of both topics as rows, with the names of the lake's columns; which of them are wanted, and from when on. Pure.

Shown records have no control character of a client. A record that breaks the contract is shown, too, with the fault for which the
landing job puts it into the quarantine table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from itertools import cycle
from typing import Any, Final

import orjson
from headrace_common.protocol import installed
from headrace_common.record.contract import (
    EVENT_RULES,
    JSON,
    QUARANTINE_HEADERS,
    QUARANTINE_RULES,
    REQUIRED_HEADERS,
    TYPE_PREFIX,
    QuarantineHeader,
    RecordFault,
    Rule,
)
from headrace_lake.commands.predicate import Condition
from headrace_reader.text import json_value, printable, text
from rich.text import Text

from headrace_cli.ground import CommandError

_STEP: Final = re.compile(r"\['([^']+)'\]|\[(\d+)\]")

NOW: Final = "now"
BEGINNING: Final = "beginning"
_AGO: Final = re.compile(r"(\d{1,6})(s|m|h|d)")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_where(text: str) -> Condition:
    """Read a condition as `lake erase` takes it: ``body.user.name=alice``, ``body['a.b'][0]=x``. Raises `CommandError`."""
    try:
        return Condition.parse(text)
    except ValueError as error:
        raise CommandError(f"--where {text}: {error}.", status=2) from error


def _holds(condition: Condition, row: Row) -> bool:
    """Return whether the row has the condition's value; values other than texts are compared as JSON."""
    found: Any = _identity(row) if condition.field == "id" else row.get(condition.field)
    for name, number in _STEP.findall(condition.path):
        if number and isinstance(found, list) and int(number) < len(found):
            found = found[int(number)]
        elif name and isinstance(found, dict) and name in found:
            found = found[name]
        else:
            return False
    return condition.value == (found if isinstance(found, str) else orjson.dumps(found).decode())


def _identity(row: Row) -> str | None:
    return row.get("event_id", row.get("id"))


@dataclass(frozen=True)
class Filters:
    """All conditions that are given must hold; a pattern has `*` and `?`. Empty: everything passes."""

    protocols: Sequence[str] = ()
    stream: str = ""
    source: str = ""
    id: str = ""
    where: Sequence[Condition] = ()

    def __bool__(self) -> bool:
        return any((self.protocols, self.stream, self.source, self.id, self.where))

    def passes(self, row: Row) -> bool:
        return (
            (not self.protocols or row.get("protocol") in self.protocols)
            and (not self.stream or fnmatchcase(str(row.get("stream", "")), self.stream))
            and (not self.source or fnmatchcase(str(row.get("source", "")), self.source))
            and (not self.id or self.id == _identity(row))
            and all(_holds(each, row) for each in self.where)
        )


NO_FILTERS: Final = Filters()


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
_PALETTE: Final = ("magenta", "cyan", "yellow", "green", "blue", "red")
_COLORS: Final = {protocol.name: color for protocol, color in zip(installed(), cycle(_PALETTE), strict=False)}


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
    """Return a line about the record and a line with its content; one more for a fault or a reason, one for attributes."""
    protocol = str(row.get("protocol", "-"))
    shown = Text(f"{row['received_time']:%H:%M:%S}.{row['received_time'].microsecond // 1000:03d} ", style="dim")
    shown.append(printable(protocol), style=_COLORS.get(protocol, ""))
    shown.append(f" {printable(str(row.get('stream', '-')))}", style="bold")
    shown.append(f" {printable(str(row.get('source', '-')))} {row['partition']}@{row['offset']}", style="dim")
    name = _identity(row)
    if name:
        shown.append(f" {printable(str(name))}", style="dim")
    if "reason" in row:
        part = f" (part {row['part']} of {row['parts']})" if row.get("parts", 1) > 1 else ""
        shown.append(f"\n  {printable(str(row['reason']))}{part}: {printable(str(row.get('detail', '')))}", style="red")
    elif "fault" in row:
        shown.append(f"\n  {row['fault']}: the landing job puts it into quarantine", style="red")
    content = next(row[key] for key in ("body", "payload", "raw") if key in row)
    shown.append(f"\n  {shown_value(content)}" if content is not None else "\n  (no value)")
    if "attributes" in row:
        shown.append(f"\n  attributes {_cut(printable(text(row['attributes'])))}", style="dim")
    return shown


_PART: Final = re.compile(r"([1-9][0-9]{0,8})/([1-9][0-9]{0,8})")


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

    @property
    def size(self) -> int:
        """Bytes of its value and its headers."""
        return len(self.value or b"") + sum(len(key) + len(value or b"") for key, value in self.headers)


Row = dict[str, Any]


def event(record: StoredRecord) -> Row:
    """Return a row of the events topic; `body` is parsed JSON, `payload` that of other content. `fault`: why it is none."""
    texts, fault = _texts(record, EVENT_RULES, REQUIRED_HEADERS)
    json = texts.get("content-type") == JSON.decode()
    body = None
    if json and record.value is not None:
        body, readable = _parsed(record.value)
        if fault is None and not readable and not _is_utf8(record.value):
            fault = RecordFault.INVALID_UTF8
        json = readable
    kind = texts.get("ce_type") or ""
    return _without_nothing(
        {
            "received_time": moment(record.timestamp),
            "protocol": kind.removeprefix(TYPE_PREFIX).partition(".")[0] if kind.startswith(TYPE_PREFIX) else None,
            "stream": texts.get("ce_subject"),
            "source": texts.get("ce_source"),
            "event_id": texts.get("ce_id"),
            "event_time": texts.get("ce_time"),
            "type": kind or None,
            "content_type": texts.get("content-type"),
            "attributes": parsed(texts.get("ce_attributes")),
            "fault": fault,
        },
        {"body": body} if json else {"payload": record.value},
        record,
    )


def reject(record: StoredRecord) -> Row:
    """Return a row of the quarantine topic; `raw` are the bytes of this part."""
    texts, fault = _texts(record, QUARANTINE_RULES, QUARANTINE_HEADERS)
    part = _PART.fullmatch(texts.get("part") or "")
    return _without_nothing(
        {
            "received_time": moment(record.timestamp),
            "reason": fault or texts.get("reason"),
            "detail": texts.get("detail"),
            "protocol": texts.get("protocol"),
            "stream": texts.get("ce_subject"),
            "source": texts.get("ce_source"),
            "id": texts.get("id"),
            "part": int(part[1]) if part else None,
            "parts": int(part[2]) if part else None,
            "sha256": texts.get("sha256"),
            "attributes": parsed(texts.get("attributes")),
            "fault": fault,
        },
        {"raw": record.value},
        record,
    )


def moment(milliseconds: int) -> datetime:
    """Return the time in UTC of Kafka's timestamp; it may be any number, since any producer writes it."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


def as_json(row: Row) -> bytes:
    """Return the row as one line of JSON: times are ISO 8601, bytes base64."""
    return orjson.dumps(json_value(row), option=orjson.OPT_NON_STR_KEYS)


def _without_nothing(columns: Row, content: Row, record: StoredRecord) -> Row:
    place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    return {name: value for name, value in columns.items() if value not in (None, {})} | content | place


def _texts(
    record: StoredRecord, rules: Mapping[Any, Rule], required: Sequence[str]
) -> tuple[dict[str, str | None], RecordFault | None]:
    """Return the headers' texts by name, and the first fault in the order of the landing job."""
    counts = Counter(key for key, _ in record.headers)
    raw = {key: value for key, value in reversed(list(record.headers)) if key in rules}
    texts = {key: None if value is None or not _is_utf8(value) else value.decode() for key, value in raw.items()}
    if record.value is None:
        return texts, RecordFault.NULL_VALUE
    if any(name not in raw for name in required):
        return texts, RecordFault.MISSING_HEADER
    if any(counts[name] > 1 for name in rules):
        return texts, RecordFault.REPEATED_HEADER
    if any(text is None or not rules[name].obeyed(text) for name, text in texts.items()):
        return texts, RecordFault.MALFORMED_HEADER
    if rules is QUARANTINE_RULES:
        part = _PART.fullmatch(texts.get(QuarantineHeader.PART) or "")
        if part is None or int(part[1]) > int(part[2]):
            return texts, RecordFault.MALFORMED_HEADER
    return texts, None


def _parsed(value: bytes) -> tuple[Any, bool]:
    try:
        return orjson.loads(value), True
    except orjson.JSONDecodeError:
        return None, False


def parsed(text: object) -> Any:
    """Return the JSON that a text holds, or the text; None for anything else, or an empty text."""
    if not isinstance(text, str) or not text:
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
