"""Courier, as log-courier speaks it: HELO, then payloads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import orjson
from headrace_common.record.contract import Reason
from headrace_courier.replies import Acknowledged, PlainReply, Replies, Version
from headrace_courier.wire import identity, jdat

from tests.contract.dialect import EVERYTHING, Silent, Values

ROOM = 256
"""Bytes of a payload that are not its padding, at least."""


class CourierConversation:
    """JDAT, whose bytes can be counted; EVNT has tests of its own."""

    def __init__(self) -> None:
        self._payloads: dict[bytes, tuple[int, int]] = {}  # by nonce: number, events
        self._said: dict[bytes, int] = {}
        self._replies = Replies()

    def _payload(self, events: list[bytes], level: int = 3, hello: bool = True) -> bytes:
        nonce = os.urandom(16)
        first = b"" if self._payloads or not hello else identity(b"HELO", "2.12.0", b"LCOR")
        self._payloads[nonce] = len(self._payloads), len(events)
        return first + jdat(nonce, events, level=level)

    def frame(self, values: Values) -> bytes:
        return self._payload([orjson.dumps(value) for value in values])

    def faulty(self, values: Values) -> bytes:
        events = [orjson.dumps(value) for value in values]
        events.insert(len(events) // 2, f"no JSON, {values[0]['mark']}".encode())
        return self._payload(events)

    def sized(self, values: Values, size: int) -> bytes:
        """A message whose length announces `size` bytes, stored and not compressed."""
        pad = size - ROOM
        while True:
            events = [orjson.dumps({**value, "pad": "x" * pad * (n == 0)}) for n, value in enumerate(values)]
            data = jdat(bytes(16), events, level=0)
            if len(data) == size + 8:
                return self._payload(events, level=0, hello=False)
            pad += size + 8 - len(data)

    def receive(self, data: bytes) -> list[int]:
        complete = []
        for reply in self._replies.receive(data):
            if isinstance(reply, Acknowledged):
                number, events = self._payloads[reply.nonce]
                assert self._said.get(reply.nonce, 0) <= reply.count <= events
                self._said[reply.nonce] = 0 if reply.count == events else reply.count
                if reply.count == events:
                    complete.append(number)
            else:
                assert isinstance(reply, Version) or reply is PlainReply.UNKNOWN
        return complete


class CourierDialect(Silent):
    """See `contract.dialect.Dialect`."""

    name = "courier"
    module = "headrace_courier"
    can = EVERYTHING
    fault = Reason.BAD_JSON
    malformed = b"GET / HTTP/1.1\r\n\r\n"

    def conversation(self) -> CourierConversation:
        return CourierConversation()

    def value(self, stored: dict[str, Any]) -> dict[str, Any]:
        return stored

    def stream(self, record_headers: Mapping[str, bytes]) -> None:
        assert record_headers["ce_subject"] == b"-"
        assert record_headers["ce_id"].startswith(b"d.")
        attributes = orjson.loads(record_headers["ce_attributes"])
        assert attributes.keys() == {"nonce", "time"}
        assert attributes["time"] == "received"
