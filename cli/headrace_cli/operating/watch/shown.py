"""Rows as lines for people. Nothing that a client sends reaches the terminal as a control character."""

from __future__ import annotations

from itertools import cycle
from typing import Any, Final

import orjson
from headrace_common.protocol import installed
from rich.text import Text

from headrace_cli.lake.text import json_value, printable, text
from headrace_cli.operating.watch.records import Row

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
    """Return a line about the record and a line with what it holds; one more for a fault or a reason, one for attributes."""
    protocol = str(row.get("protocol", "-"))
    shown = Text(f"{row['received_time']:%H:%M:%S}.{row['received_time'].microsecond // 1000:03d} ", style="dim")
    shown.append(printable(protocol), style=_COLORS.get(protocol, ""))
    shown.append(f" {printable(str(row.get('stream', '-')))}", style="bold")
    shown.append(f" {printable(str(row.get('source', '-')))} {row['partition']}@{row['offset']}", style="dim")
    name = row.get("event_id", row.get("id"))
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
