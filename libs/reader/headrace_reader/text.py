"""Values of a row as text."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any, Final

_CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def json_value(value: Any) -> Any:
    """Converts `value` for JSON: times to ISO 8601, bytes to base64, numbers that JSON lacks to text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [json_value(item) for item in value]
    return str(value)


def text(value: Any) -> str:
    """Returns `value` as one text: JSON where it is a list or a mapping."""
    plain = json_value(value)
    if plain is None:
        return ""
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def printable(value: str) -> str:
    """Returns the text without characters that move the cursor or turn the reading direction."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), value)


def compact(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {text(value)}" for name, value in row.items())
