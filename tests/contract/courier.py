"""Courier, as log-courier speaks it: HELO, then payloads. JDAT; EVNT has tests of its own."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from headrace_courier.client import CourierClient

from tests.contract.dialect import Dialect


class CourierDialect(Dialect):
    """See `contract.dialect.Dialect`."""

    name = "courier"
    client = CourierClient
    module = "headrace_courier"
    malformed = CourierClient.malformed
    added = frozenset({"@timestamp", "type"})

    def stream(self, record_headers: Mapping[str, bytes]) -> None:
        super().stream(record_headers)
        assert orjson.loads(record_headers["ce_attributes"]).keys() == {"nonce"}
