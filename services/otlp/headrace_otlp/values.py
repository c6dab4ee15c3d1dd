"""The values of OTLP as plain JSON: what a log record, its resource and its scope say. Pure."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final

import orjson
from headrace_common.record.contract import Note, Reason

from headrace_otlp.logs import ContentError

MOST_VALUES: Final = 10_000
"""Values that a log record, a resource or a scope may have: they are read in one call, of some ms."""


class Plain:
    """Writes values. `depth`: maximum nesting of an event. `notes`: why JSON cannot hold what it has written exactly."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._left = MOST_VALUES
        self.notes: set[Note] = set()

    def record(self, record: Any) -> bytes:
        """Returns a LogRecord as a JSON object: OTLP's own names, and no field that it does not have. Raises `ContentError`."""
        has_body = record.HasField("body")
        made = {
            "timeUnixNano": record.time_unix_nano and str(record.time_unix_nano),
            "observedTimeUnixNano": record.observed_time_unix_nano and str(record.observed_time_unix_nano),
            "severityNumber": record.severity_number,
            "severityText": record.severity_text,
            "body": self._value(record.body, 2) if has_body else None,
            "attributes": record.attributes and self._object(record.attributes, 2),
            "droppedAttributesCount": record.dropped_attributes_count,
            "flags": record.flags,
            "traceId": record.trace_id.hex(),
            "spanId": record.span_id.hex(),
            "eventName": record.event_name,
        }
        return orjson.dumps({name: value for name, value in made.items() if value or (name == "body" and has_body)})

    def resource(self, logs: Any) -> bytes:
        """Returns what ResourceLogs says of all its records, as a JSON object. Raises `ContentError`."""
        return orjson.dumps(self._described(logs.resource, logs.schema_url))

    def scope(self, logs: Any) -> bytes:
        """Returns what ScopeLogs says of all its records, as a JSON object. Raises `ContentError`."""
        names = {"name": logs.scope.name, "version": logs.scope.version}
        return orjson.dumps(self._described(logs.scope, logs.schema_url, **names))

    def _described(self, described: Any, schema_url: str, **names: str) -> dict[str, Any]:
        made = names | {
            "attributes": described.attributes and self._object(described.attributes, 3),
            "droppedAttributesCount": described.dropped_attributes_count,
            "schemaUrl": schema_url,
        }
        return {name: value for name, value in made.items() if value}

    def _object(self, pairs: Sequence[Any], level: int) -> Any:
        """Returns pairs as an object. Repeated keys are repeated."""
        self._enter(len(pairs), level)
        values = [(each.key, self._value(each.value, level + 1)) for each in pairs]
        made = dict(values)
        if len(made) == len(values):
            return made
        self.notes.add(Note.REPEATED_KEYS)
        return orjson.Fragment(b"{%b}" % b",".join(orjson.dumps(k) + b":" + orjson.dumps(v) for k, v in values))

    def _enter(self, count: int, level: int) -> None:
        if level > self._depth:
            raise ContentError(Reason.TOO_DEEP, f"nested deeper than {self._depth}")
        self._left -= count
        if self._left < 0:
            raise ContentError(Reason.OVERSIZED, f"more than {MOST_VALUES} values")

    def _value(self, value: Any, level: int) -> Any:
        kind = value.WhichOneof("value")
        if kind == "kvlist_value":
            return self._object(value.kvlist_value.values, level)
        if kind == "array_value":
            self._enter(len(value.array_value.values), level)
            return [self._value(each, level + 1) for each in value.array_value.values]
        if kind is None:
            return None
        if kind == "string_value_strindex":
            raise ContentError(Reason.BAD_RECORD, "an index of a text, which log records have not")
        plain = getattr(value, kind)
        if kind == "bytes_value":
            return b64encode(plain).decode()
        if kind == "double_value" and not math.isfinite(plain):
            self.notes.add(Note.NUMBERS)
            return "NaN" if math.isnan(plain) else "Infinity" if plain > 0 else "-Infinity"
        return plain
