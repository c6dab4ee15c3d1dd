"""The values of OTLP as plain JSON: what a log record, its resource and its scope say. Pure."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final

import orjson
from headrace_common.record.contract import Note, Reason

from headrace_otlp.logs import MOST_VALUES, ContentError

ENTITIES: Final = "entityRefs"
"""A field of resources that is in development, and not read."""


class Plain:
    """Writes the values of a record, a resource or a scope, which protobuf nests less than 64 deep. `notes`: why JSON cannot hold
    what it has written exactly. Raises `ContentError`.
    """

    def __init__(self) -> None:
        self._left = MOST_VALUES
        self.notes: set[Note] = set()

    def message(self, message: Any, schema_url: str = "") -> bytes:
        """Returns a LogRecord, a Resource or a scope as a JSON object: OTLP's own names, and no field that it does not have."""
        fields = [(each.json_name, value) for each, value in message.ListFields() if each.json_name != ENTITIES]
        made = {name: self._field(name, value) for name, value in fields}
        return orjson.dumps(made | {"schemaUrl": schema_url} if schema_url else made)

    def _field(self, name: str, value: Any) -> Any:
        if name == "attributes":
            return self._object(value)
        if name == "body":
            return self._value(value)
        if isinstance(value, bytes):  # an id
            return value.hex()
        return str(value) if name.endswith("UnixNano") else value

    def _object(self, pairs: Sequence[Any]) -> Any:
        """Returns pairs as an object. Repeated keys are repeated."""
        self._count(pairs)
        values = [(each.key, self._value(each.value)) for each in pairs]
        made = dict(values)
        if len(made) == len(values):
            return made
        self.notes.add(Note.REPEATED_KEYS)
        return orjson.Fragment(b"{%b}" % b",".join(orjson.dumps(k) + b":" + orjson.dumps(v) for k, v in values))

    def _count(self, values: Sequence[Any]) -> None:
        self._left -= len(values)
        if self._left < 0:
            raise ContentError(Reason.OVERSIZED, f"more than {MOST_VALUES} values")

    def _value(self, value: Any) -> Any:
        kind = value.WhichOneof("value")
        if kind is None:
            return None
        plain = getattr(value, kind)
        if kind == "kvlist_value":
            return self._object(plain.values)
        if kind == "array_value":
            self._count(plain.values)
            return [self._value(each) for each in plain.values]
        if kind == "string_value_strindex":
            raise ContentError(Reason.BAD_RECORD, "an index of a text, which log records have not")
        if kind == "bytes_value":
            return b64encode(plain).decode()
        if kind == "double_value" and not math.isfinite(plain):
            self.notes.add(Note.NUMBERS)
            return "NaN" if math.isnan(plain) else "Infinity" if plain > 0 else "-Infinity"
        return plain
