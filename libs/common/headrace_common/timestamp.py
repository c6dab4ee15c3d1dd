"""Timestamps as text: what clients write in JSON, as the RFC 3339 in UTC that `ce_time` is."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

_TEXT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:[.,](\d{1,32}))?(?:[Zz]|([+-]\d\d):?(\d\d))", re.ASCII
)


@lru_cache(maxsize=4096)
def _is_second(text: str) -> bool:
    """Whether ``YYYY-MM-DDTHH:MM:SS`` names a second."""
    try:
        datetime.strptime(text, "%Y-%m-%dT%H:%M:%S")
    except ValueError:
        return False
    return len(text) == 19 and text.isascii()


def rfc3339_utc(text: str) -> bytes | None:
    """`text` in UTC, with the decimals it has; None when it is no date and time of day with an offset.

    Leap seconds and years outside 1 to 9999 are none.
    """
    if text[-1:] == "Z" and _is_second(text[:19]):
        fraction = text[19:-1]
        if not fraction or (fraction[0] == "." and fraction[1:].isdecimal() and fraction.isascii()):
            return text.encode()
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    day, clock, fraction, hours, minutes = found.groups()
    try:
        at = datetime.fromisoformat(f"{day}T{clock}{hours or '+00'}:{minutes or '00'}").astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    second = at.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    return f"{second}{'.' + fraction if fraction else ''}Z".encode()
