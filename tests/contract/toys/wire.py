"""What both toys speak: u32 length (of all of it), then a JSON object. A client's has `id` and `events`, a server's `ack`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import LimitSettings
from headrace_common.record.contract import Reason
from headrace_common.record.event import Envelope, Part, Reject, deterministic_id, rfc3339_ms, source
from headrace_common.session.interface import Frame, Pause, Ticket
from typing_extensions import override

HEADER = 4


def packed(document: dict[str, Any]) -> bytes:
    body = json.dumps(document, ensure_ascii=False).encode()
    return (HEADER + len(body)).to_bytes(HEADER, "big") + body


class Cutter:
    """Bytes to whole bodies."""

    def __init__(self, limit: int) -> None:
        self.data = b""
        self.offset = 0
        self._limit = limit

    def feed(self, data: bytes) -> Iterator[bytes]:
        self.data += data
        while len(self.data) >= HEADER:
            size = int.from_bytes(self.data[:HEADER], "big")
            if not HEADER <= size <= self._limit:
                raise ProtocolError(
                    "a message of that size",
                    limit="LIMITS__FRAME_BYTES" if size > self._limit else None,
                    offset=self.offset,
                    sample=self.data[:HEADER],
                )
            if len(self.data) < size:
                return
            body, self.data = self.data[HEADER:size], self.data[size:]
            self.offset += size
            yield body


class ToyFrame(Frame):
    """A message's events. What is no object is rejected."""

    def __init__(
        self, protocol: str, identity: str, body: bytes, ticket: Ticket, now_ms: int, limits: LimitSettings
    ) -> None:
        self.ticket = ticket
        self.received_ms = now_ms
        self.size = len(body)
        self.body = body
        self._protocol = protocol
        self._limits = limits
        self._envelope = Envelope(protocol, source(protocol, identity), "toy")

    @override
    def parts(self) -> Iterator[Part | Pause]:
        document = json.loads(self.body)
        for number, event in enumerate(document["events"]):
            raw = json.dumps(event, ensure_ascii=False).encode()
            name = deterministic_id(self._protocol, document["id"].encode(), str(number).encode(), raw)
            if not isinstance(event, dict):
                yield self._envelope.reject(Reason.BAD_RECORD, "no object", raw, name)
            elif len(raw) > self._limits.event_bytes:
                yield self._envelope.reject(Reason.OVERSIZED, "too large", raw, name)
            else:
                yield self._envelope.event(name, rfc3339_ms(self.received_ms), raw)

    @override
    def spoiled(self, detail: str) -> Reject:
        return self._envelope.reject(Reason.INTERNAL, detail, self.body, deterministic_id(self._protocol, self.body))
