"""OTLP over HTTP, as exporters of OpenTelemetry speak it: in protobuf, and in JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from google.protobuf.json_format import MessageToDict
from headrace_common.record.contract import Reason
from headrace_otlp.client import OtlpClient
from headrace_otlp.logs import JSON
from headrace_otlp.wire import request
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs

from tests.contract.dialect import Dialect


class JsonOtlpClient(OtlpClient):
    """As OpenTelemetry's for JavaScript, in JSON. A record that cannot be read would take its request along."""

    def broken(self, event: Mapping[str, Any]) -> bytes:
        return b""

    def document(self, event: Mapping[str, Any]) -> bytes:
        return orjson.dumps(MessageToDict(LogRecord.FromString(super().document(event))))

    def payload(self, documents: Sequence[bytes]) -> bytes:
        self._next(len(documents))
        about = orjson.dumps(MessageToDict(ResourceLogs.FromString(self.about)))
        scopes = b'"scopeLogs":[{"logRecords":[%b]}]' % b",".join(documents)
        return request(b'{"resourceLogs":[%b,%b}]}' % (about[:-1], scopes), JSON)


class OtlpDialect(Dialect):
    """See `contract.dialect.Dialect`."""

    name = "otlp"
    client = OtlpClient
    malformed = OtlpClient.malformed
    fault = Reason.BAD_RECORD

    def value(self, stored: dict[str, Any]) -> dict[str, Any]:
        return stored["body"]
