"""OTLP over HTTP, as exporters of OpenTelemetry speak it: in protobuf, and in JSON."""

from __future__ import annotations

from typing import Any

from headrace_common.record.contract import Reason
from headrace_otlp.client import JsonOtlpClient, OtlpClient

from tests.contract.dialect import Dialect


class OtlpDialect(Dialect):
    """See `contract.dialect.Dialect`."""

    name = "otlp"
    client = OtlpClient
    module = "headrace_otlp"
    malformed = OtlpClient.malformed
    fault = Reason.BAD_RECORD

    def value(self, stored: dict[str, Any]) -> dict[str, Any]:
        return stored["body"]


class JsonOtlpDialect(OtlpDialect):
    """The same in JSON."""

    variant = "json"
    client = JsonOtlpClient
