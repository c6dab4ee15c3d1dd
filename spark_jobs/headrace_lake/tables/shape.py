"""The optional columns: parts of the body promoted to typed columns, and the body as VARIANT.

The table's properties record which of them it has. Without settings for them the job takes the table as it is. Settings that
disagree with the table are refused until it is migrated, so that no column stays empty by mistake.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from headrace_common.operations.errors import ConfigError

from headrace_lake.configuration.promotion import Promotion, parse, split
from headrace_lake.configuration.settings import LakeSettings

PROMOTED: Final = "headrace.promoted"
"""Table property: the promotions, as a list in JSON."""
BODY: Final = "headrace.body"
"""Table property: `variant` if `BODY_VARIANT` is filled."""
PROMOTION: Final = "LAKE__PROMOTE: "
"""Begins the comment of a promoted column; it stays when the promotion is removed."""
BODY_VARIANT: Final = "body_variant"
"""The column that holds the body as VARIANT."""

_INEXACT: Final = r"(^|[:,\\[\\s])(-?[0-9]+(\\.[0-9]+)?[eE]|-?[0-9.]{39,}|-0(\\.0*)?([,}\\]\\s]|$))|\\\\u[dD][89a-fA-F]"
"""Matches texts whose value VARIANT may change: exponents, more than 38 digits, minus zero, halves of surrogate pairs.

It also matches inside strings, which only costs a second copy. Escaped for a string literal of Spark's SQL.
"""


@dataclass(frozen=True)
class Shape:
    """The optional columns of the events table."""

    promoted: tuple[Promotion, ...] = ()
    variant: bool = False
    taken: frozenset[str] = frozenset()
    """Columns of promotions, also of former ones, whose names this version gives to columns of its own: it leaves those out."""

    @property
    def columns(self) -> dict[str, str]:
        """Column -> type, in order."""
        body = {BODY_VARIANT: "variant"} if self.variant else {}
        return body | {promotion.name: promotion.kind for promotion in self.promoted}

    @property
    def comments(self) -> dict[str, str]:
        """Column -> comment."""
        body = {BODY_VARIANT: "the parsed body; body is null unless its text says more"} if self.variant else {}
        return body | {promotion.name: f"{PROMOTION}{promotion}" for promotion in self.promoted}

    @property
    def properties(self) -> dict[str, str]:
        """The table properties that record this shape."""
        promoted = json.dumps([str(promotion) for promotion in self.promoted])
        return {PROMOTED: promoted, BODY: "variant" if self.variant else "string"}

    def body(self, text: str, parsed: str) -> list[str]:
        """Returns the columns `body` and of this shape, as SQL; `text` and `parsed`: expressions of the body's text and its
        VARIANT.
        """
        promoted = [promotion.column(text) for promotion in self.promoted]
        if not self.variant:
            return [f"{text} as body", *promoted]
        exact = f"{parsed} is not null and not {text} rlike '{_INEXACT}'"
        return [f"if({exact}, null, {text}) as body", f"{parsed} as {BODY_VARIANT}", *promoted]


def parse_all(texts: Iterable[str], own: Iterable[str], table: Shape | None) -> tuple[Promotion, ...]:
    """Returns the promotions in `texts` for `table` (None: a new one), if it can have them. Raises `ConfigError` if not.

    `own`: the names of this version's columns. A promotion may have one of these names only where the table has given it to a
    promotion before.
    """
    try:
        promotions = parse(texts)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    own = {*own, BODY_VARIANT} - (table.taken if table else set())
    for promotion in promotions:
        if promotion.name in own:
            raise ConfigError(f"the table has a column {promotion.name} of its own: give `{promotion}` another name")
    return promotions


def of_table(properties: Mapping[str, str]) -> Shape:
    """Returns the shape of the events table with `properties`."""
    promoted = tuple(Promotion.parse(text) for text in json.loads(properties.get(PROMOTED, "[]")))
    return Shape(promoted, properties.get(BODY) == "variant")


def settled(settings: LakeSettings, table: Shape | None, own: Iterable[str]) -> Shape:
    """Returns the shape to land with, from the settings and the table's (None: the table does not exist yet); `own` as above.

    Raises `ConfigError` if they disagree; the message names the command that resolves it.
    """
    asked = parse_all(split(settings.promote), own, table)
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
