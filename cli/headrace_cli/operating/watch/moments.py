"""Where reading begins: now, at the beginning, or at a time. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from headrace_cli.errors import CommandError

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
