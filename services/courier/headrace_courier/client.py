"""A client like log-courier: HELO, then payloads, each with a nonce of its own. Pure."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_common.session.client import STREAM, Answer, KeyedClient, Remark
from typing_extensions import override

from headrace_courier import wire

BODIES: Final = {b"ACKN": wire.NONCE_BYTES + 4, b"VERS": wire.HELLO_BYTES, b"PONG": 0, b"????": 0}
"""Bytes of the body of each reply that a server may send."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """ACKN: how many of the payload's first events are stored."""

    nonce: bytes
    count: int


class CourierReplies:
    """Parses a server's replies."""

    def __init__(self) -> None:
        self._data = b""

    def receive(self, data: bytes) -> list[Acknowledged | Remark]:
        """Returns the messages that `data`, split anywhere, completes. Raises `ProtocolError` for bytes that no server sends."""
        self._data += data
        found: list[Acknowledged | Remark] = []
        while len(self._data) >= wire.HEADER.size:
            kind, length = wire.HEADER.unpack_from(self._data)
            if length != BODIES.get(kind):
                raise ProtocolError(f"a reply {kind!r} of {length} bytes")
            end = wire.HEADER.size + length
            if len(self._data) < end:
                break
            body, self._data = self._data[wire.HEADER.size : end], self._data[end:]
            if kind == b"ACKN":
                nonce, count = body[: wire.NONCE_BYTES], body[wire.NONCE_BYTES :]
                found.append(Acknowledged(nonce, int.from_bytes(count, "big")))
            else:
                found.append(Remark(kind.decode()))
        return found


class CourierClient(KeyedClient):
    """It does not wait for VERS before an EVNT; the receiver accepts that."""

    elsewhere = True
    malformed = b"\x16\x03\x01\x02\x00\x01\x00\x01"

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[bytes, int] = {}
        self._replies = CourierReplies()

    @override
    def document(self, event: Mapping[str, Any]) -> bytes:
        seconds, fraction = divmod(time.time_ns(), 10**9)
        at = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{fraction:09d}Z"
        return orjson.dumps({"@timestamp": at, "type": STREAM, **event})

    @override
    def payload(self, documents: Sequence[bytes]) -> bytes:
        nonce = os.urandom(wire.NONCE_BYTES)
        self._keyed(nonce, len(documents))
        return wire.jdat(nonce, documents)

    @override
    def again(self) -> bytes:
        self._replies = CourierReplies()
        self._said.clear()
        return wire.identity(b"HELO", "2.12.0", b"LCOR")

    @override
    def receive(self, data: bytes) -> list[Answer | Remark]:
        return [self._heard(reply) for reply in self._replies.receive(data)]

    def _heard(self, reply: Acknowledged | Remark) -> Answer | Remark:
        if isinstance(reply, Remark):
            return reply
        answer = self._answer(self._frame_of(reply.nonce), reply.count)
        if reply.count < self._said.get(reply.nonce, 0):
            raise ProtocolError(f"an ACKN of {reply.count} events after one of {self._said[reply.nonce]}")
        if answer.whole:
            self._said.pop(reply.nonce, None)
        else:
            self._said[reply.nonce] = reply.count
        return answer
