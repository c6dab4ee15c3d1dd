"""The columns that are optional: parts of the body promoted to typed columns, and the body as VARIANT.

A table says in its own properties which it has. Settings that say nothing take the table as it is; settings that say
something else are refused until the table was migrated, so that no column is left empty by mistake.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from headrace_common.errors import ConfigError

from headrace_lake.settings import LakeSettings

PROMOTED: Final = "headrace.promoted"
"""Table property: the promotions, as a list in JSON."""
BODY: Final = "headrace.body"
"""Table property: `variant` when `BODY_VARIANT` is filled."""
BODY_VARIANT: Final = "body_variant"
"""The column that holds the body in the form VARIANT."""

_PROMOTION: Final = re.compile(
    r"\s*body(?P<path>[.\[].*?)\s+as\s+(?P<name>\w+)\s+(?P<kind>[\w(), ]+?)\s*", re.IGNORECASE
)
_STEP: Final = re.compile(r"\.([A-Za-z_$@][\w$@-]*)|\[(\d+)\]|\['([^'\\]+)'\]")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_KINDS: Final = {
    "string": "string", "boolean": "boolean", "int": "int", "integer": "int", "bigint": "bigint", "long": "bigint",
    "float": "float", "double": "double", "date": "date", "timestamp": "timestamp",
}  # fmt: skip
_INEXACT: Final = r"(^|[:,\\[\\s])(-?[0-9]+(\\.[0-9]+)?[eE]|-?[0-9.]{38,}|-0(\\.0*)?([,}\\]\\s]|$))|\\\\u[dD][89a-fA-F]"
"""Where VARIANT may not hold the same value: exponents, more than 38 digits, minus zero, halves of surrogate pairs.

Found in a string too, it costs a second copy, nothing else. As it stands within quotation marks of Spark's SQL.
"""
_CALENDAR: Final = {
    "date": "between date'0001-01-01' and date'9999-12-31'",
    "timestamp": "between timestamp'0001-01-01 00:00:00Z' and timestamp'9999-12-31 23:59:59.999999Z'",
}
"""Where other readers' calendars end."""


@dataclass(frozen=True)
class Promotion:
    """A part of the body as a column: `body<path> as <name> <kind>`; `kind` is a type of Spark's SQL."""

    path: str
    name: str
    kind: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads ``body.path as name type``. Raises `ValueError` with what is wrong."""
        found = _PROMOTION.fullmatch(text)
        if found is None:
            raise ValueError(f"`{text.strip()}` is not of the form `body.path as name type`")
        path, name, kind = found["path"], found["name"], " ".join(found["kind"].lower().split())
        if _STEP.sub("", path):
            raise ValueError(f"`body{path}` is no path: use .name, ['any name'] and [0]")
        if not _NAME.fullmatch(name):
            raise ValueError(f"`{name}` is no name for a column: letters, digits and _ only")
        if _DECIMAL.fullmatch(kind):
            digits, scale = map(int, _DECIMAL.fullmatch(kind).groups())  # type: ignore[union-attr]
            if not 1 <= digits <= 38 or scale > digits:
                raise ValueError(f"`{kind}`: at most 38 digits, and no more behind the point than in all")
            return cls(path, name.lower(), f"decimal({digits},{scale})")
        if kind not in _KINDS:
            raise ValueError(f"`{kind}` is none of {', '.join(_KINDS)}, decimal(p,s)")
        return cls(path, name.lower(), _KINDS[kind])

    def __str__(self) -> str:
        return f"body{self.path} as {self.name} {self.kind}"

    def column(self, text: str) -> str:
        """The column, as SQL over the expression `text` of the body; null for whatever does not fit. Cannot throw."""
        steps = ""
        for name, index, quoted in _STEP.findall(self.path):
            steps += f"[{index}]" if index else f"[\\'{name or quoted}\\']"
        value = f"try_cast(get_json_object({text}, '${steps}') as {self.kind})"
        if self.kind in _CALENDAR:
            value = f"case when {value} {_CALENDAR[self.kind]} then {value} end"
        return f"{value} as {self.name}"


@dataclass(frozen=True)
class Shape:
    """What the events table has beside its own columns."""

    promoted: tuple[Promotion, ...] = ()
    variant: bool = False

    @property
    def columns(self) -> dict[str, str]:
        """Each with its type, in order."""
        body = {BODY_VARIANT: "variant"} if self.variant else {}
        return body | {promotion.name: promotion.kind for promotion in self.promoted}

    @property
    def properties(self) -> dict[str, str]:
        """What the table says of it."""
        promoted = json.dumps([str(promotion) for promotion in self.promoted])
        return {PROMOTED: promoted, BODY: "variant" if self.variant else "string"}

    def body(self, text: str, parsed: str) -> list[str]:
        """The column `body` and those of this shape, as SQL over the expressions of the body's text and its VARIANT."""
        promoted = [promotion.column(text) for promotion in self.promoted]
        if not self.variant:
            return [f"{text} as body", *promoted]
        exact = f"{parsed} is not null and not {text} rlike '{_INEXACT}'"
        return [f"if({exact}, null, {text}) as body", f"{parsed} as {BODY_VARIANT}", *promoted]


def merged(promotions: Iterable[Promotion]) -> tuple[Promotion, ...]:
    """`promotions`, each once. Raises `ConfigError` when one name stands for two things."""
    found: dict[str, Promotion] = {}
    for promotion in promotions:
        other = found.setdefault(promotion.name, promotion)
        if other != promotion:
            raise ConfigError(f"the column {promotion.name} cannot be both `{other}` and `{promotion}`")
    return tuple(found.values())


def parse_all(texts: Iterable[str], taken: Iterable[str]) -> tuple[Promotion, ...]:
    """The promotions that `texts` name; `taken`: names of columns that are none. Raises `ConfigError`."""
    try:
        promotions = merged(Promotion.parse(text) for text in texts)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    for promotion in promotions:
        if promotion.name in {*taken, BODY_VARIANT}:
            raise ConfigError(f"the table has a column {promotion.name} of its own: give `{promotion}` another name")
    return promotions


def split(text: str) -> list[str]:
    """A list of promotions with commas between them; those in parentheses and brackets belong to one."""
    return [part for part in re.split(r",(?![^(\[]*[)\]])", text) if part.strip()]


def of_table(properties: Mapping[str, str]) -> Shape:
    """What the events table has that carries `properties`."""
    promoted = tuple(Promotion.parse(text) for text in json.loads(properties.get(PROMOTED, "[]")))
    return Shape(promoted, properties.get(BODY) == "variant")


def settled(settings: LakeSettings, table: Shape | None, taken: Iterable[str]) -> Shape:
    """The shape to land with, of what the settings ask for and the table has (None: it is to be made).

    Raises `ConfigError` when they disagree, naming the command that mends it.
    """
    asked = parse_all(split(settings.promote), taken)
    if table is None:
        return Shape(asked, settings.body == "variant")
    command = "stop the job, run `python -m headrace_lake migrate` with these settings, and start it again"
    if settings.promote and set(asked) != set(table.promoted):
        has = "; ".join(map(str, table.promoted)) or "none"
        raise ConfigError(f"LAKE__PROMOTE and the events table disagree (it has {has}): {command}")
    if settings.body is not None and (settings.body == "variant") != table.variant:
        has = "variant" if table.variant else "string"
        raise ConfigError(f"LAKE__BODY is {settings.body} and the events table was made for {has}: {command}")
    return table
