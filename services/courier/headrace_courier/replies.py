"""Parses a server's replies, as a client does: for the command line, the tests and the load generators."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headrace_common.operations.errors import ProtocolError

from headrace_courier.wire import EVNT_SPOKEN, HEADER, HELLO_BYTES, IDENTITY, NONCE_BYTES


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """ACKN: how many of the payload's first events are stored."""

    nonce: bytes
    count: int


@dataclass(frozen=True, slots=True)
class Version:
    """VERS. `evnt`: the client may send EVNT."""

    evnt: bool
    version: tuple[int, int, int]
    name: bytes


class PlainReply(Enum):
    """The other replies of a server."""

    PONG = "PONG"
    UNKNOWN = "????"


class CourierReplies:
    """Parses a server's replies."""

    def __init__(self) -> None:
        self._data = b""

    def receive(self, data: bytes) -> list[Acknowledged | Version | PlainReply]:
        """Returns the messages that `data`, split anywhere, completes. Raises `ProtocolError` for bytes that no server sends."""
        self._data += data
        found: list[Acknowledged | Version | PlainReply] = []
        while len(self._data) >= HEADER.size:
            kind, length = HEADER.unpack_from(self._data)
            if length > HELLO_BYTES:
                raise ProtocolError(f"a reply {kind!r} of {length} bytes")
            end = HEADER.size + length
            if len(self._data) < end:
                break
            found.append(_reply(kind, self._data[HEADER.size : end]))
            self._data = self._data[end:]
        return found


def _reply(kind: bytes, body: bytes) -> Acknowledged | Version | PlainReply:
    if kind == b"ACKN" and len(body) == NONCE_BYTES + 4:
        return Acknowledged(body[:NONCE_BYTES], int.from_bytes(body[NONCE_BYTES:], "big"))
    if kind == b"VERS":
        flags, major, minor, patch, name = IDENTITY.unpack(body.ljust(HELLO_BYTES, b"\0"))
        return Version(bool(flags[0] & EVNT_SPOKEN), (major, minor, patch), name)
    if kind in (b"PONG", b"????") and not body:
        return PlainReply(kind.decode())
    raise ProtocolError(f"a reply {kind!r} of {len(body)} bytes")
