"""Routes: streams that also get a table of their own, with typed columns. What a user declares, and the columns that follow.

The columns come from a JSON schema, or from the first bodies that are seen. Knows neither tables nor Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import unquote

from headrace_common.operations.settings import Section
from pydantic import Field, field_validator

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_RESERVED: Final = frozenset((
    "events", "quarantine", "batches", "gaps", "erasures", "kept_from", "kept_from_said", "transactions", "strays", "routes",
))  # fmt: skip
"""Other tables, and those that `./headrace query` makes for itself."""
_LONGEST: Final = 64
_DEEPEST: Final = 5
"""Levels of objects that become columns; deeper values are JSON text."""
_MOST: Final = 500
"""Columns of a route."""
_STRANGE: Final = re.compile(r"['`?\\\x00-\x1f\ud800-\udfff]")
"""Characters that the key of a column may not have: Spark's paths cannot name it, and half a surrogate pair has no UTF-8."""
_LONGEST_KEY: Final = 255
"""Characters; Delta could not read its own statistics of a column whose name has 50,000."""
_MOST_SEEN: Final = 20 * _MOST
"""Keys that a sample remembers: bodies may have millions of different ones."""
_FORMATS: Final = {"date-time": "timestamp", "date": "date"}
_KINDS: Final = {"boolean": "boolean", "integer": "bigint", "number": "double", "array": "string", "object": "string"}
_BIGINT: Final = 1 << 63

Found = dict[tuple[str, ...], str]
"""Keys from the body's top on -> type in Spark's SQL."""


class RouteSettings(Section):
    """One route."""

    streams: str = Field(
        min_length=1,
        description="Patterns of streams, separated by commas: `*` is any text, `?` one character.",
    )
    json_schema: Path | dict[str, Any] | None = Field(
        None,
        description="JSON schema of the bodies, from which the columns follow: a file, or the schema itself; default: the columns"
        " follow from the first batch that has such events.",
    )

    @field_validator("streams")
    @classmethod
    def _patterns(cls, text: str) -> str:
        if not all(part.strip() for part in text.split(",")):
            raise ValueError("a pattern is empty")
        return ",".join(part.strip() for part in text.split(","))

    @field_validator("json_schema")
    @classmethod
    def _columns(cls, schema: Path | dict[str, Any] | None) -> Path | dict[str, Any] | None:
        if schema is not None:
            of_schema(read(schema), ())
        return schema

    def columns(self, taken: Iterable[str]) -> tuple[RouteColumn, ...] | None:
        """Returns the columns of the JSON schema; None without one. `taken`: names that the table has already."""
        return None if self.json_schema is None else of_schema(read(self.json_schema), taken)


@dataclass(frozen=True)
class RouteColumn:
    """A part of the body as the column `name`: the keys on the way to it, and its type in Spark's SQL."""

    name: str
    path: tuple[str, ...]
    kind: str

    @classmethod
    def parse(cls, entry: list[Any]) -> Self:
        """Makes a column from what `entry` made."""
        name, path, kind = entry
        return cls(name, tuple(path), kind)

    @property
    def entry(self) -> list[Any]:
        """The column as a value for JSON."""
        return [self.name, list(self.path), self.kind]

    def __str__(self) -> str:
        return f"body.{'.'.join(self.path)}"


def check_names(names: Iterable[str]) -> None:
    """Raises `ValueError` if one of `names` cannot be a route's."""
    for name in names:
        if not _NAME.fullmatch(name) or len(name) > _LONGEST:
            raise ValueError(
                f"{name!r} cannot be a table's name: small letters, digits and single _, a letter first, at most {_LONGEST}"
            )
        if name in _RESERVED:
            raise ValueError(f"{name} is another table's name: give the route another one")


def read(schema: Path | Mapping[str, Any]) -> Any:
    """Returns the document of a JSON schema. Raises `ValueError`; its text says what is wrong."""
    if not isinstance(schema, Path):
        return schema
    try:
        return json.loads(schema.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{schema} cannot be read as JSON: {error}") from error


def of_schema(document: Any, taken: Iterable[str]) -> tuple[RouteColumn, ...]:
    """Returns the columns of a JSON schema, in its order. Raises `ValueError`; its text says what is wrong."""
    found: Found = {}
    for path, kind in _declared(document, document, (), 0):
        if not all(map(_can_be_column, path)):
            raise ValueError(
                f"the property {'.'.join(path)[: 2 * _LONGEST_KEY]!r} cannot become a column: it has a character of ' ` ? \\,"
                f" is empty or longer than {_LONGEST_KEY}"
            )
        found[path] = kind
    if not found:
        raise ValueError("the JSON schema has no `properties`: the bodies of a route are objects")
    if len(found) > _MOST:
        raise ValueError(f"the JSON schema has {len(found)} properties: at most {_MOST} can be columns")
    return _named(found, taken)


def _declared(root: Any, node: Any, path: tuple[str, ...], depth: int) -> Iterator[tuple[tuple[str, ...], str]]:
    node = _resolved(root, node)
    properties = node.get("properties")
    if isinstance(properties, Mapping) and depth < _DEEPEST:
        for key, inner in _first_of_each_spelling(properties).items():
            yield from _declared(root, inner, (*path, key), depth + 1)
    elif path:
        yield path, _kind(node)


def _resolved(root: Any, node: Any) -> Mapping[str, Any]:
    """Returns `node` without references to other parts of `root`, and without null as an alternative."""
    for _ in range(_DEEPEST):
        if not isinstance(node, Mapping):
            return {}  # true and false are schemas, too
        choices = [each for name in ("anyOf", "oneOf", "allOf") for each in _listed(node.get(name))]
        choices = [each for each in choices if not (isinstance(each, Mapping) and each.get("type") == "null")]
        reference = node.get("$ref")
        if isinstance(reference, str):
            if not reference.startswith("#/"):
                raise ValueError(f"the JSON schema refers to {reference}: only its own parts (#/…) are read")
            node = _part(root, reference)
        elif len(choices) == 1 and "properties" not in node:
            node = choices[0]
        else:
            return node
    raise ValueError("the JSON schema refers to itself")


def _part(root: Any, reference: str) -> Any:
    """Returns the value that a JSON pointer (RFC 6901) names in `root`. Raises `ValueError`."""
    node = root
    for key in unquote(reference).removeprefix("#/").split("/"):
        key = key.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, Mapping) or key not in node:
            raise ValueError(f"the JSON schema refers to {reference}, which it does not have")
        node = node[key]
    return node


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _kind(node: Mapping[str, Any]) -> str:
    given = node.get("type")
    kinds = {each for each in [given, *_listed(given)] if isinstance(each, str)}
    kinds.discard("null")
    if kinds == {"integer", "number"}:
        return "double"
    if len(kinds) != 1:
        return "string"
    (kind,) = kinds
    return _FORMATS.get(str(node.get("format")), "string") if kind == "string" else _KINDS.get(kind, "string")


def sampled(bodies: Iterable[str], taken: Iterable[str]) -> tuple[RouteColumn, ...]:
    """Returns columns for the values of the objects among `bodies`; none if there is no object.

    A key with values of several types becomes text. Texts stay texts, whatever they look like: the next one may look otherwise.
    """
    found: Found = {}
    for body in bodies:
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            _see(value, (), found)
    # an object here and a value there: text, also the columns seen within
    plain = {path for path, kind in found.items() if kind}
    kept = {path: kind for path, kind in found.items() if not any(path[:n] in plain for n in range(1, len(path)))}
    return _named(dict([pair for pair in kept.items() if pair[1]][:_MOST]), taken)


def _see(value: dict[str, Any], above: tuple[str, ...], found: Found) -> None:
    for key, inner in _first_of_each_spelling(value).items():
        path = (*above, key)
        if inner is None or not _can_be_column(key) or (len(found) >= _MOST_SEEN and path not in found):
            continue
        if isinstance(inner, dict) and inner and len(path) < _DEEPEST:
            if found.setdefault(path, ""):
                found[path] = "string"
            _see(inner, path, found)
            continue
        kind = _kind_of(inner)
        before = found.get(path, kind)
        both = {before, kind}
        found[path] = kind if before == kind else "double" if both == {"bigint", "double"} else "string"


def _kind_of(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "bigint" if -_BIGINT <= value < _BIGINT else "string"
        case float():
            return "double"
        case _:
            return "string"


def _first_of_each_spelling(values: Mapping[str, Any]) -> dict[str, Any]:
    """Keeps, of keys that differ in case alone, the first: columns cannot."""
    found: dict[str, str] = {}
    for key in values:
        found.setdefault(_spelling(key), key)
    return {key: values[key] for key in found.values()}


def _can_be_column(key: str) -> bool:
    return 0 < len(key) <= _LONGEST_KEY and _STRANGE.search(key) is None


def _spelling(key: str) -> str:
    """Returns the same for all keys that Spark takes for one name: Java's `equalsIgnoreCase`, one character for each."""
    upper = (each if len(each.upper()) > 1 else each.upper() for each in key)
    return "".join(each.lower()[0] for each in upper)


def _named(found: Found, taken: Iterable[str]) -> tuple[RouteColumn, ...]:
    """Returns names for the columns, without those of the table's own. The names of keys, in small letters, joined by _."""
    used = {name.lower() for name in taken}
    spelled: dict[tuple[str, ...], tuple[str, ...]] = {}
    columns = []
    for path, kind in found.items():
        # bodies may spell an object's key differently: Spark could not tell the two objects apart
        ways = [path[:n] for n in range(1, len(path) + 1)]
        if any(spelled.get(tuple(map(_spelling, way)), way) != way for way in ways):
            continue
        spelled.update((tuple(map(_spelling, way)), way) for way in ways)
        base = re.sub(r"[^a-z0-9_]+", "_", "_".join(path).lower())
        base = base if base[:1].isalpha() else f"_{base}"
        name = base if base not in used else f"body_{base}"
        number = 2
        while name in used:
            name = f"{base}_{number}"
            number += 1
        used.add(name)
        columns.append(RouteColumn(name, path, kind))
    return tuple(columns)
