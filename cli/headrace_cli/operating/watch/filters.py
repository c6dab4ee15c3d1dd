"""Which records are wanted, and from when on. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Final

import orjson

from headrace_cli.ground import CommandError
from headrace_cli.operating.watch.records import Row

_STEP: Final = re.compile(r'\.?"((?:[^"\\]|\\.)*)"|\.?([^."\[\]=]+)|\[(\d{1,9})\]')
_PATH: Final = re.compile(rf"(?:{_STEP.pattern})+(?==)")
_ESCAPED: Final = re.compile(r"\\(.)")
_ABSENT: Final = object()
ROOTS: Final = ("body", "attributes")

NOW: Final = "now"
BEGINNING: Final = "beginning"
_AGO: Final = re.compile(r"(\d{1,6})(s|m|h|d)")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True)
class Where:
    """That the value at a path in a row is this one: as JSON if it is some, or as text."""

    path: tuple[str | int, ...]
    value: str

    def holds(self, row: Row) -> bool:
        found: Any = row
        for step in self.path:
            if isinstance(found, dict):
                found = found.get(step, _ABSENT)
            elif isinstance(found, list) and isinstance(step, int):
                found = found[step] if step < len(found) else _ABSENT
            else:
                return False
        if isinstance(found, str) and found == self.value:
            return True
        try:
            wanted = orjson.loads(self.value)
        except orjson.JSONDecodeError:
            return False
        return type(found) is type(wanted) and bool(found == wanted)


def parse_where(text: str) -> Where:
    """Read ``body.path=value``; a path has names, ``"quoted names"`` and ``[numbers]``. Raises `CommandError`."""
    path = _PATH.match(text)
    found = _STEP.findall(path[0]) if path is not None else []
    if path is None or len(found) < 2 or found[0][1] not in ROOTS:
        raise CommandError(
            f"--where {text}: expected PATH=VALUE with a path that begins with {' or '.join(ROOTS)}, for example"
            " body.user.name=alice.",
            status=2,
        )
    steps = [int(number) if number else name or _ESCAPED.sub(r"\1", quoted) for quoted, name, number in found]
    return Where(tuple(steps), text[path.end() + 1 :])


@dataclass(frozen=True)
class Filters:
    """All of what is given must hold; a pattern has `*` and `?`. Empty: everything passes."""

    protocols: Sequence[str] = ()
    stream: str = ""
    source: str = ""
    id: str = ""
    where: Sequence[Where] = ()

    def __bool__(self) -> bool:
        return any((self.protocols, self.stream, self.source, self.id, self.where))

    def passes(self, row: Row) -> bool:
        return (
            (not self.protocols or row.get("protocol") in self.protocols)
            and (not self.stream or fnmatchcase(str(row.get("stream", "")), self.stream))
            and (not self.source or fnmatchcase(str(row.get("source", "")), self.source))
            and (not self.id or self.id == row.get("event_id", row.get("id")))
            and all(each.holds(row) for each in self.where)
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
