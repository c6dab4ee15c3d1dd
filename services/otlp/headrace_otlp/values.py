"""The values of OTLP as plain JSON: what a log record, its resource and its scope say. Pure."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import orjson
from headrace_common.record.contract import Note, Reason

from headrace_otlp.logs import MOST_VALUES, ContentError


class Plain:
    """Writes the values of a record, a resource or a scope, which protobuf nests less than 64 deep. `notes`: why JSON cannot hold
    what it has written exactly. Raises `ContentError`.
    """

    def __init__(self) -> None:
        self._left = MOST_VALUES
        self.notes: set[Note] = set()

    def record(self, record: Any) -> bytes:
        """Returns a LogRecord as a JSON object: OTLP's own names, and no field that it does not have."""
        has_body = record.HasField("body")
        made = {
            "timeUnixNano": record.time_unix_nano and str(record.time_unix_nano),
            "observedTimeUnixNano": record.observed_time_unix_nano and str(record.observed_time_unix_nano),
            "severityNumber": record.severity_number,
            "severityText": record.severity_text,
            "body": self._value(record.body) if has_body else None,
            "attributes": record.attributes and self._object(record.attributes),
            "droppedAttributesCount": record.dropped_attributes_count,
            "flags": record.flags,
            "traceId": record.trace_id.hex(),
            "spanId": record.span_id.hex(),
            "eventName": record.event_name,
        }
        return orjson.dumps({name: value for name, value in made.items() if value or (name == "body" and has_body)})

    def described(self, described: Any, schema_url: str, **names: str) -> bytes:
        """Returns a Resource or a scope with its `names` as a JSON object."""
        made = names | {
            "attributes": described.attributes and self._object(described.attributes),
            "droppedAttributesCount": described.dropped_attributes_count,
            "schemaUrl": schema_url,
        }
        return orjson.dumps({name: value for name, value in made.items() if value})

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
