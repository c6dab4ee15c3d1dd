"""A part of the body as its own column: ``body.path as name type``. Knows neither tables nor settings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

_PROMOTION: Final = re.compile(
    r"\s*body(?P<path>[.\[].*?)\s+as\s+(?P<name>\w+)\s+(?P<kind>[\w(), ]+?)\s*", re.IGNORECASE
)
_STEP: Final = re.compile(r"\.([A-Za-z_$@][\w$@-]*)|\[(\d{1,9})\]|\['([^'\\]+)'\]")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OURS: Final = "_headrace_"
"""Begins the names of columns that rows have on their way to a table. No column of a table begins so."""
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_KINDS: Final = {
    "string": "string", "boolean": "boolean", "int": "int", "integer": "int", "bigint": "bigint", "long": "bigint",
    "float": "float", "double": "double", "date": "date", "timestamp": "timestamp",
}  # fmt: skip
CALENDAR: Final = {
    "date": "between date'0001-01-01' and date'9999-12-31'",
    "timestamp": "between timestamp'0001-01-01 00:00:00Z' and timestamp'9999-12-31 23:59:59.999999Z'",
}
"""The limits of other readers' calendars."""


@dataclass(frozen=True)
class Promotion:
    """A part of the body as a column: `body<path> as <name> <kind>`; `kind` is a type in Spark's SQL."""

    path: str
    name: str
    kind: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses ``body.path as name type``. Raises `ValueError`; its text says what is wrong."""
        found = _PROMOTION.fullmatch(text)
        if found is None:
            raise ValueError(f"`{text.strip()}` is not of the form `body.path as name type`")
        path, name, kind = found["path"], found["name"], " ".join(found["kind"].lower().split())
        json_path(path)
        if not _NAME.fullmatch(name):
            raise ValueError(f"`{name}` is not a column name: letters, digits and _ only")
        if _DECIMAL.fullmatch(kind):
            digits, scale = map(int, _DECIMAL.fullmatch(kind).groups())  # type: ignore[union-attr]
            if not 1 <= digits <= 38 or scale > digits:
                raise ValueError(f"`{kind}`: at most 38 digits, and the scale at most as large")
            return cls(path, name.lower(), f"decimal({digits},{scale})")
        if kind not in _KINDS:
            raise ValueError(f"`{kind}` is none of {', '.join(_KINDS)}, decimal(p,s)")
        return cls(path, name.lower(), _KINDS[kind])

    def __str__(self) -> str:
        return f"body{self.path} as {self.name} {self.kind}"

    def column(self, text: str) -> str:
        """Returns the column as SQL, from the expression `text` of the body; null if the value does not fit. Cannot throw."""
        path = json_path(self.path).replace("'", "\\'")
        value = f"try_cast(get_json_object({text}, '{path}') as {self.kind})"
        if self.kind in CALENDAR:
            value = f"case when {value} {CALENDAR[self.kind]} then {value} end"
        return f"{value} as {self.name}"


def json_path(path: str) -> str:
    """Returns `path` within the body as Spark's `get_json_object` takes it. Raises `ValueError` if it is not a path."""
    if _STEP.sub("", path):
        raise ValueError(f"`body{path}` is not a path: use .name, ['any name'] and [0]")
    steps = (f"[{index}]" if index else f"['{name or other}']" for name, index, other in _STEP.findall(path))
    return "$" + "".join(steps)


def check_path(path: str) -> None:
    """Raises `ValueError` if Spark cannot look for a name in `path`: it takes this one for all names, and finds nothing."""
    if "['*']" in path:
        raise ValueError(f"`body{path}`: nothing finds the name *")


def merged(promotions: Iterable[Promotion]) -> tuple[Promotion, ...]:
    """Returns `promotions` without repeats. Raises `ValueError` if two different ones have the same name."""
    found: dict[str, Promotion] = {}
    for promotion in promotions:
        other = found.setdefault(promotion.name, promotion)
        if other != promotion:
            raise ValueError(f"the column {promotion.name} cannot be both `{other}` and `{promotion}`")
    return tuple(found.values())


def parse(texts: Iterable[str]) -> tuple[Promotion, ...]:
    """Returns the promotions in `texts`. Raises `ValueError`; its text says what is wrong."""
    found = merged(Promotion.parse(text) for text in texts)
    for promotion in found:
        if promotion.name.startswith(OURS):
            raise ValueError(f"`{promotion.name}` begins with {OURS}, as names of the job's own do: choose another")
        check_path(promotion.path)
    return found


def split(text: str) -> list[str]:
    """Splits a list of promotions at its commas, except those within parentheses or brackets."""
    return [part for part in re.split(r",(?![^(\[]*[)\]])", text) if part.strip()]
