"""OTLP over HTTP, as exporters of OpenTelemetry speak it: in protobuf, and in JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from headrace_common.record.contract import Reason
from headrace_otlp.client import OtlpClient
from headrace_otlp.logs import JSON

from tests.contract.dialect import Dialect


class JsonOtlpClient(OtlpClient):
    """As OpenTelemetry's for JavaScript, in JSON. A record that cannot be read would take its request along."""

    encoding = JSON

    def broken(self, event: Mapping[str, Any]) -> bytes:
        return b""

    def encoded(self, message: Message) -> bytes:
        return orjson.dumps(MessageToDict(message))

    def body(self, documents: Sequence[bytes]) -> bytes:
        scopes = b'"scopeLogs":[{"logRecords":[%b]}]' % b",".join(documents)
        return b'{"resourceLogs":[%b,%b}]}' % (self._about[:-1], scopes)


class OtlpDialect(Dialect):
    """See `contract.dialect.Dialect`."""

    name = "otlp"
    client = OtlpClient
    malformed = OtlpClient.malformed
    fault = Reason.BAD_RECORD

    def value(self, stored: dict[str, Any]) -> dict[str, Any]:
        return stored["body"]
