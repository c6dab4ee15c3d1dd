"""OTLP over HTTP, as exporters of OpenTelemetry speak it: in protobuf, and in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from google.protobuf.message import Message
from headrace_common.record.contract import Reason
from headrace_otlp.client import OtlpClient
from headrace_otlp.logs import JSON

from tests.contract.dialect import Dialect


class JsonOtlpClient(OtlpClient):
    """As OpenTelemetry's for JavaScript, in JSON."""

    encoding = JSON

    def broken(self, event: Mapping[str, Any]) -> bytes:
        return self.document(event)[:-1] + b',"flags":"none"}'

    def _encoded(self, value: dict[str, Any], message: Message) -> bytes:
        return orjson.dumps(value)


class OtlpDialect(Dialect):
    """See `contract.dialect.Dialect`."""

    name = "otlp"
    client = OtlpClient
    module = "headrace_otlp"
    malformed = OtlpClient.malformed
    fault = Reason.BAD_RECORD

    def value(self, stored: dict[str, Any]) -> dict[str, Any]:
        return stored["body"]
