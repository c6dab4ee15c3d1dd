"""Courier on the wire: bytes to messages and back. Pure: no sockets, no clock.

A message is a type of four ASCII characters, a length (u32, big-endian) and its bytes. An EVNT announces the length
FFFFFFFF and ends where its zlib stream ends. Sources: docs/protocols/courier.md.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.record import native
from headrace_common.session.inflate import INPUT_WORK, WINDOW, Inflated, inflate_zlib, new_zlib
from headrace_common.session.parser import Cost, Parser, Steps, UpTo
from typing_extensions import override

HEADER: Final = struct.Struct(">4sI")
NONCE_BYTES: Final = 16
HELLO_BYTES: Final = 32
STREAMING: Final = 0xFFFFFFFF
EVNT_SPOKEN: Final = 0x01
"""Bit in the first byte of VERS that allows a client to send EVNT."""

FRAME_EVENTS: Final = "LIMITS__FRAME_EVENTS"
FRAME_BYTES: Final = "LIMITS__FRAME_BYTES"
PREFIX: Final = 4
FDICT: Final = 0x20
"""The bit of a zlib stream's second byte that asks for a dictionary (RFC 1950)."""
ENTRY_BYTES: Final = 64
"""Bytes of memory that an entry takes beyond its own."""
STEP: Final = 2048
"""Entries that are cut in one call."""
ENTRY_WORK: Final = 256
"""The work of an entry, as inflated bytes that take as long."""


class MessageKind(Enum):
    """The meaning of a message without a payload."""

    HELO = "the client's first message"
    PING = "a keep-alive that asks for a PONG"
    COMPLAINT = "????: the client did not know one of our messages"
    UNKNOWN = "a message that we do not know, or not at this point"


@dataclass(frozen=True, slots=True)
class Payload:
    """A JDAT or an EVNT, complete and inflated. `entries`: its events; `size`: bytes that it holds in memory."""

    nonce: bytes
    entries: list[bytes]
    size: int


_SERVERS: Final = (b"PONG", b"ACKN", b"VERS")
_OWN: Final = frozenset(range(0x20, 0x7F))
_LENGTH: Final = struct.Struct(">I").unpack_from


class Entries:
    """A payload's inflated content, cut into entries: each a length (u32, big-endian) and as many bytes."""

    __slots__ = ("_largest", "_most", "_need", "_pieces", "entries", "held", "rest")

    def __init__(self, most: int, largest: int) -> None:
        """`most`: entries that a payload may have; `largest`: bytes of an entry."""
        self._most, self._largest = most, largest
        self._need = PREFIX  # bytes before anything can be cut: pieces of a large entry are joined once
        self._pieces: list[bytes] = []
        self.entries: list[bytes] = []
        self.held = self.rest = 0
        """`held`: bytes in memory of what is cut; `rest`: bytes that are not cut yet."""

    def feed(self, piece: bytes) -> None:
        """Adds content. Then call `cut` until it returns 0."""
        if piece:
            self._pieces.append(piece)
            self.rest += len(piece)

    def cut(self) -> int:
        """Cuts at most `STEP` entries. Returns how many. Raises `ProtocolError` if there are too many, or one is announced as too
        large.
        """
        if self.rest < self._need:
            return 0
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces = []  # freed before anything is copied out of `data`: an entry can be large
        found, at = native.core.cut(data, self._largest, STEP)
        end, self._need = len(data), PREFIX
        while len(found) < STEP and end - at >= PREFIX:
            size = _LENGTH(data, at)[0]
            if size > self._largest:
                raise ProtocolError(f"an event of {size} bytes", limit=FRAME_BYTES)
            stop = at + PREFIX + size
            if stop > end:
                self._need = PREFIX + size
                break
            found.append(data[at + PREFIX : stop])
            at = stop
        self.entries += found
        if len(self.entries) > self._most:
            raise ProtocolError(f"a payload of more than {self._most} events", limit=FRAME_EVENTS)
        self.held += at + ENTRY_BYTES * len(found)
        self.rest -= at
        if at < end:
            self._pieces = [data[at:]]
        return len(found)


class CourierDecoder(Parser[MessageKind | Payload]):
    """Decodes a client's bytes, split anywhere, into messages and payloads.

    `frame_bytes`: maximum size of a body, of an EVNT's stream, and of an event; `frame_events`: maximum events of a
    payload; `inflated_bytes`: most bytes of a payload's content.
    """

    def __init__(self, frame_bytes: int, frame_events: int, inflated_bytes: int) -> None:
        self._frame_bytes = frame_bytes
        self._frame_events = frame_events
        self._inflated_bytes = inflated_bytes
        self.arriving: bytes | None = None
        """The nonce of the current payload."""
        super().__init__()

    @override
    def fault(self, problem: str, limit: str | None = None) -> ProtocolError:
        self.arriving = None
        return super().fault(problem, limit)

    @override
    def messages(self) -> Steps:
        first = True
        while True:
            self.begins()
            kind, length = HEADER.unpack((yield HEADER.size))
            if kind in (b"JDAT", b"EVNT"):
                yield (yield from self._payload(kind, length))
            elif kind == b"PING":
                if length:
                    raise ProtocolError(f"a PING with a body of {length} bytes")
                yield MessageKind.PING
            elif kind == b"HELO" and first:
                if length > HELLO_BYTES:
                    raise ProtocolError(f"a HELO of {length} bytes; it has at most {HELLO_BYTES}")
                yield length
                yield MessageKind.HELO
            elif kind in _SERVERS:
                raise ProtocolError(f"{kind.decode()} from a client; only a server sends that")
            elif not _OWN.issuperset(kind):
                raise ProtocolError("not a message")
            elif length > self._frame_bytes:
                raise ProtocolError(f"a message of {length} bytes", limit=FRAME_BYTES)
            else:
                while length:
                    length -= len((yield UpTo(length)))
                yield MessageKind.COMPLAINT if kind == b"????" else MessageKind.UNKNOWN
            first = False

    def _payload(self, kind: bytes, length: int) -> Generator[Any, bytes, Payload]:
        endless = kind == b"EVNT"
        if endless and length != STREAMING:
            raise ProtocolError(f"an EVNT of {length} bytes; its length is always FFFFFFFF")
        if not endless and length <= NONCE_BYTES:
            raise ProtocolError(f"a JDAT of {length} bytes has no payload")
        if not endless and length > self._frame_bytes:
            raise ProtocolError(f"a message of {length} bytes", limit=FRAME_BYTES)
        self.arriving = nonce = yield NONCE_BYTES
        body = (yield from self._stream()) if endless else (yield length - NONCE_BYTES)
        content = Entries(self._frame_events, self._frame_bytes)
        for piece in inflate_zlib(body, self._inflated_bytes):
            content.feed(piece)
            self.held = len(body) + content.held + content.rest
            yield Cost(max(len(piece), WINDOW * INPUT_WORK))
            while number := content.cut():
                yield Cost(number * ENTRY_WORK)
        if content.rest:
            raise ProtocolError("a payload ends inside an entry")
        self.arriving = None
        return Payload(nonce, content.entries, content.held)

    def _stream(self) -> Generator[Any, bytes, bytes]:
        """Returns an EVNT's stream, whose end only inflating shows. Inflating it again is cheap. Keeping the output would let a
        client that never finishes take the others' memory with a few bytes.
        """
        inflater, inflated = new_zlib(), Inflated(self._inflated_bytes)
        body, left = bytearray(), self._frame_bytes - NONCE_BYTES
        while not inflater.eof:
            if not left:
                raise ProtocolError("an EVNT that does not end", limit=FRAME_BYTES)
            piece = yield UpTo(min(left, WINDOW))
            body += piece
            left, self.held = left - len(piece), len(body)
            if len(body) > 1 and body[1] & FDICT:
                raise ProtocolError("does not inflate: it needs a dictionary")
            for out in inflated.slices(inflater, piece):
                yield Cost(max(len(out), INPUT_WORK * len(piece)))
        if inflater.unused_data:
            del body[-len(inflater.unused_data) :]
            self.unread(inflater.unused_data)
        return bytes(body)


# Messages that both sides write

PONG: Final = HEADER.pack(b"PONG", 0)
PING: Final = HEADER.pack(b"PING", 0)
COMPLAINT: Final = HEADER.pack(b"????", 0)
_ACKN: Final = struct.Struct(">4sI16sI")
IDENTITY: Final = struct.Struct(">4sIII4s12x")


def acknowledgement(nonce: bytes, count: int) -> bytes:
    """Makes an ACKN: the first `count` events of this payload are stored."""
    return _ACKN.pack(b"ACKN", NONCE_BYTES + 4, nonce, count)


def identity(kind: bytes, version: str, name: bytes, *, evnt: bool = False) -> bytes:
    """Makes a HELO or VERS. `version`: ``major.minor.patch``; `name`: four characters."""
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    body = IDENTITY.pack(bytes((EVNT_SPOKEN if evnt else 0, 0, 0, 0)), major, minor, patch, name)
    return HEADER.pack(kind, len(body)) + body


# The client's side, for the command line, the tests and the load generators


def entry(event: bytes) -> bytes:
    """Returns one event as a payload has it before compression."""
    return len(event).to_bytes(4, "big") + event


def jdat(nonce: bytes, events: Iterable[bytes], *, level: int = 3) -> bytes:
    """Makes a payload of the original protocol. `nonce`: 16 bytes."""
    return jdat_of(nonce, b"".join(map(entry, events)), level=level)


def jdat_of(nonce: bytes, content: bytes, *, level: int = 3) -> bytes:
    """Makes one of events that have their lengths in front."""
    body = nonce + zlib.compress(content, level)
    return HEADER.pack(b"JDAT", len(body)) + body
