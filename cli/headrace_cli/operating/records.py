"""Records of both topics as rows, with the names of the lake's columns. Pure.

Shown records have no control character of a client. A record that breaks the contract is shown, too.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import orjson
from aiokafka import ConsumerRecord
from headrace_common.record.contract import HEADERS, JSON, QUARANTINE_HEADERS, TYPE_PREFIX
from headrace_reader.fresh.rows import received
from headrace_reader.text import printable, text
from rich.text import Text

LINE: Final = 2_000
"""Most characters of a value that are shown."""
Row = dict[str, Any]

_COLUMNS: Final = {name: name.removeprefix("ce_").replace("-", "_") for name in (*HEADERS[1:], *QUARANTINE_HEADERS)}
_COLUMNS.update(ce_subject="stream", ce_id="event_id", ce_time="event_time")
"""The lake's columns by header."""


def decoded(record: ConsumerRecord[Any, Any]) -> Row:
    """Return a row: `body` is parsed JSON, `payload` other content, `raw` the bytes of this part of what is in quarantine."""
    row: Row = {
        _COLUMNS[name]: (value or b"").decode(errors="replace") for name, value in record.headers if name in _COLUMNS
    }
    row.setdefault("protocol", row.get("type", "").removeprefix(TYPE_PREFIX).partition(".")[0] or "-")
    if "attributes" in row:
        row["attributes"] = parsed(row["attributes"])
    content: Row = {"raw" if "reason" in row else "payload": record.value}
    if row.get("content_type") == JSON.decode():
        with suppress(orjson.JSONDecodeError):  # of a record that breaks the contract
            content = {"body": orjson.loads(record.value or b"")}
    place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    return {"received_time": received(record.timestamp), **row, **content, **place}


def parsed(value: str) -> Any:
    """Return the JSON that a text holds, or the text."""
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def pretty(row: Row) -> Text:
    """Return a line about the record and a line with its content; one more for a reason, one for attributes."""
    shown = Text(f"{row['received_time']:%H:%M:%S}.{row['received_time'].microsecond // 1000:03d} ", style="dim")
    shown.append(printable(str(row["protocol"])), style="cyan")
    shown.append(f" {printable(str(row.get('stream', '-')))}", style="bold")
    name = row.get("event_id") or row.get("id") or ""
    about = f" {row.get('source', '-')} {row['partition']}@{row['offset']} {name}"
    shown.append(printable(about), style="dim")
    if "reason" in row:
        why = f"{row['reason']}, part {row.get('part')}: {row.get('detail', '')}"
        shown.append(f"\n  {printable(why)}", style="red")
    content = next(row[key] for key in ("body", "payload", "raw") if key in row)
    if isinstance(content, bytes):
        content = content.decode(errors="backslashreplace")
    shown.append(f"\n  {_line(content)}")
    if "attributes" in row:
        shown.append(f"\n  attributes {_line(row['attributes'])}", style="dim")
    return shown


def _line(value: Any) -> str:
    line = printable(text(value))
    return line if len(line) <= LINE else f"{line[:LINE]} … ({len(line):,} characters)"
