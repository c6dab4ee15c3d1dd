"""RELP, as rsyslog speaks it: each message is answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from headrace_common.record.contract import Reason
from headrace_syslog.client import RelpClient

from tests.contract.dialect import EVENT_BYTES, Dialect


class Relaying(RelpClient):
    """Its broken event is larger than one may be: any other bytes are a message."""

    def broken(self, event: Mapping[str, Any]) -> bytes:
        return self.document(event) + bytes(EVENT_BYTES)


class RelpDialect(Dialect):
    """See `contract.dialect.Dialect`."""

    name = "relp"
    client = Relaying
    sections: Mapping[str, Mapping[str, object]] = {"limits": {"event_bytes": EVENT_BYTES}}
    fault = Reason.OVERSIZED
    malformed = RelpClient.malformed

    def value(self, stored: dict[str, Any]) -> dict[str, Any]:
        return orjson.loads(stored["message"])
