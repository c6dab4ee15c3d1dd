"""Courier, as log-courier speaks it: HELO, then payloads. JDAT; EVNT has tests of its own."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from headrace_common.record.contract import Reason
from headrace_courier.client import CourierClient

from tests.contract.dialect import Conversation, Dialect


class CourierDialect(Dialect):
    """See `contract.dialect.Dialect`."""

    name = "courier"
    module = "headrace_courier"
    fault = Reason.BAD_JSON
    malformed = CourierClient.malformed
    added = frozenset({"@timestamp", "type"})

    def conversation(self) -> Conversation:
        return Conversation(CourierClient())

    def stream(self, record_headers: Mapping[str, bytes]) -> None:
        super().stream(record_headers)
        assert orjson.loads(record_headers["ce_attributes"]).keys() == {"nonce"}
