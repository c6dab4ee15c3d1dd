"""Rows of the events table as rows of a route's table: the body's values in columns of their own types. Frames in, frames out.

The body is parsed once. Nothing in it makes these expressions throw.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField

from headrace_lake.configuration.promotion import CALENDAR, OURS
from headrace_lake.configuration.routes import RouteColumn
from headrace_lake.spark.literals import quoted
from headrace_lake.tables.layout import DAY, EVENTS, SCHEMAS, SKIPPED_BY
from headrace_lake.tables.properties import ROUTE
from headrace_lake.tables.shape import BODY_VARIANT

MISFITS: Final = "misfits"
"""Column of a route's table: see `_OWN`."""

_BEFORE: Final = ("event_id", "protocol", "source", "stream", "event_time", "received_time")
_AFTER: Final = ("topic", "topic_id", "partition", "offset", "landed_at", DAY)
_OWN: Final = {
    "body": "the whole body, if one of its values did not fit its column; else null: events has it",
    MISFITS: "columns whose values did not fit them, with commas; body: it is no JSON object; null if all fitted",
}
OWN: Final = (*_BEFORE, *_OWN, *_AFTER)
"""The columns of a route's table that do not come from the bodies' values, in a table that this version makes."""

_RANGED: Final = frozenset({"bigint", "double", "date", "timestamp"})
_MOST_RANGED: Final = 32
_UNREADABLE: Final = "_headrace?unreadable"
"""No key with a question mark becomes a column."""
_PARSED: Final = f"{OURS}parsed"
_TEXT: Final = f"{OURS}text"


@dataclass(frozen=True)
class RouteTable:
    """The table of a route: its streams (patterns, separated by commas) and the columns of the body."""

    name: str
    streams: str
    columns: tuple[RouteColumn, ...]
    left_out: frozenset[str] = frozenset()
    """Those of `OWN` that the table lacks. Its columns are fixed; a later version's may have the name of one from the body."""

    @classmethod
    def of(cls, name: str, properties: Mapping[str, str], there: Iterable[str]) -> Self | None:
        """Returns the table `name` with `properties` and the columns `there`; None if it is not a route's."""
        if ROUTE not in properties:
            return None
        said: dict[str, Any] = json.loads(properties[ROUTE])
        columns = tuple(map(RouteColumn.parse, said["columns"]))
        own = {*there}.difference(column.name for column in columns)
        return cls(name, said["streams"], columns, frozenset(OWN) - own)

    @property
    def properties(self) -> dict[str, str]:
        """Returns the properties that `of` reads."""
        return {ROUTE: json.dumps({"streams": self.streams, "columns": [column.entry for column in self.columns]})}

    @property
    def kinds(self) -> dict[str, tuple[str, str]]:
        """Column -> type and comment, in order."""
        fields: dict[str, StructField] = {field.name: field for field in SCHEMAS[EVENTS].fields}

        def of_events(*names: str) -> dict[str, tuple[str, str]]:
            kept = self._kept(names)
            return {name: (fields[name].dataType.simpleString(), fields[name].metadata["comment"]) for name in kept}

        typed = {column.name: (column.kind, str(column)) for column in self.columns}
        own = {name: ("string", _OWN[name]) for name in self._kept(_OWN)}
        return of_events(*_BEFORE) | typed | own | of_events(*_AFTER)

    @property
    def ranged(self) -> list[str]:
        """The columns with statistics. Texts of bodies are not among them: the log would keep some."""
        typed = [column.name for column in self.columns if column.kind in _RANGED]
        return [*SKIPPED_BY, *typed[:_MOST_RANGED]]

    def rows(self, events: DataFrame) -> DataFrame:
        """Returns the rows of the table from `events`: rows of the events table, of any streams."""
        text = f"coalesce(body, to_json({BODY_VARIANT}))" if BODY_VARIANT in events.columns else "body"
        of_events = self._kept((*_BEFORE, *_AFTER))
        frame = events.where(matches(self.streams)).selectExpr(*of_events, f"{text} as {_TEXT}")
        options = f"map('columnNameOfCorruptRecord', '{_UNREADABLE}')"
        frame = frame.selectExpr("*", f"from_json({_TEXT}, {quoted(self._type())}, {options}) as {_PARSED}")
        typed = [f"{_value(column)} as `{column.name}`" for column in self.columns]
        frame = frame.selectExpr(*of_events, _TEXT, *typed, f"{self._misfits()} as {MISFITS}")
        names = [f"`{name}`" for name in self.kinds if name != "body"]
        whole = frame.selectExpr(*names, f"if({MISFITS} is null, null, {_TEXT}) as body")
        return whole.select(*(f"`{name}`" for name in self.kinds))

    def _kept(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name not in self.left_out]

    def _type(self) -> str:
        """Returns the columns as the struct that `from_json` makes."""
        tree: dict[str, Any] = {}
        for column in self.columns:
            node = tree
            for key in column.path[:-1]:
                node = node.setdefault(key, {})
            # Spark would take a number for a time as seconds
            node[column.path[-1]] = "string" if column.kind in CALENDAR else column.kind
        fields = [f"`{key}` {_ddl(inner)}" for key, inner in tree.items()]
        return ", ".join([*fields, f"`{_UNREADABLE}` string"])

    def _misfits(self) -> str:
        named = [
            f"if({raw} is not null and {_value(column)} is null, {quoted(column.name)}, null)"
            for column in self.columns
            if (raw := _raw(column)) is not None
        ]
        listed = f"nullif(concat_ws(',', {', '.join(named)}), '')" if named else "string(null)"
        broken = f"{_PARSED}.`{_UNREADABLE}` is not null"
        times = [column for column in self.columns if column.kind in CALENDAR]
        odd = " or ".join(f"({_field(column)} is not null and {_value(column)} is null)" for column in times)
        # what costs a second look at the text is asked only where something did not fit
        return (
            f"case when {_TEXT} is null then null when {_PARSED} is null then 'body'"
            f" when {broken}{f' or {odd}' if odd else ''} then coalesce({listed}, 'body') end"
        )


def matches(streams: str) -> str:
    """Returns SQL over events: whether the stream meets one of the patterns, separated by commas."""
    return "(" + " or ".join(map(_matches, streams.split(","))) + ")"


def _matches(pattern: str) -> str:
    if not set("*?") & set(pattern):
        return f"stream = {quoted(pattern)}"
    escaped = "".join(f"\\{sign}" if sign in "\\%_" else sign for sign in pattern)
    return f"stream like {quoted(escaped.replace('*', '%').replace('?', '_'))}"


def _ddl(node: Any) -> str:
    if isinstance(node, str):
        return node
    return "struct<" + ", ".join(f"`{key}`: {_ddl(inner)}" for key, inner in node.items()) + ">"


def _field(column: RouteColumn) -> str:
    return ".".join([_PARSED, *(f"`{key}`" for key in column.path)])


def _value(column: RouteColumn) -> str:
    """Returns the column's value as SQL; null if it does not fit. Cannot throw."""
    if column.kind not in CALENDAR:
        return _field(column)
    value = f"try_cast({_field(column)} as {column.kind})"
    return f"case when {value} {CALENDAR[column.kind]} then {value} end"


def _raw(column: RouteColumn) -> str | None:
    """Returns the value's text as SQL; None for a column that holds any value."""
    if column.kind == "string":
        return None
    if column.kind in CALENDAR:
        return _field(column)
    path = "$" + "".join(f"['{key}']" for key in column.path)
    return f"get_json_object({_TEXT}, {quoted(path)})"
