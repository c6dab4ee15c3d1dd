"""Courier, as log-courier speaks it: HELO, then payloads. JDAT; EVNT has tests of its own."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import orjson
from headrace_courier.client import CourierClient
from headrace_courier.wire import HEADER, NONCE_BYTES

from tests.contract.dialect import Conversation, Dialect


class CourierConversation(Conversation):
    """Its events are always compressed."""

    def retold(self, frame: bytes, mark: str, other: str) -> bytes:
        begin = frame.index(b"JDAT")
        at = begin + HEADER.size + NONCE_BYTES
        events = super().retold(zlib.decompress(frame[at:]), mark, other)
        body = frame[begin + HEADER.size : at] + zlib.compress(events)
        return frame[:begin] + HEADER.pack(b"JDAT", len(body)) + body


class CourierDialect(Dialect):
    """See `contract.dialect.Dialect`."""

    name = "courier"
    client = CourierClient
    malformed = CourierClient.malformed
    added = frozenset({"@timestamp", "type"})

    def conversation(self) -> CourierConversation:
        return CourierConversation(self.client())

    def stream(self, record_headers: Mapping[str, bytes]) -> None:
        super().stream(record_headers)
        assert orjson.loads(record_headers["ce_attributes"]).keys() == {"nonce"}
