"""Courier on the wire: bytes to messages and back. Pure: no sockets, no clock.

A message is a type of four ASCII characters, a length (u32, big-endian) and its bytes. An EVNT announces the length
FFFFFFFF and ends where its zlib stream ends. Sources: docs/protocols/courier.md.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.inflate import INPUT_WORK, SLICE, InflateLimits

from headrace_courier.entries import FRAME_BYTES, Entries
from headrace_courier.zlib_stream import ZlibStream

HEADER: Final = struct.Struct(">4sI")
NONCE_BYTES: Final = 16
HELLO_BYTES: Final = 32
STREAMING: Final = 0xFFFFFFFF
EVNT_SPOKEN: Final = 0x01
"""Bit in the first byte of VERS that allows a client to send EVNT."""

SAMPLE: Final = 16

WORK: Final = SLICE
ENTRY_WORK: Final = 256
MESSAGE_WORK: Final = 8192
"""The work of one call, as inflated bytes; an entry counts as ENTRY_WORK, a message as MESSAGE_WORK, a byte to inflate as
INPUT_WORK at least. It takes a few ms."""


class MessageKind(Enum):
    """The meaning of a message without a payload."""

    HELO = "the client's first message"
    PING = "a keep-alive that asks for a PONG"
    COMPLAINT = "????: the client did not know one of our messages"
    UNKNOWN = "a message that we do not know, or not at this point"


@dataclass(frozen=True, slots=True)
class Payload:
    """A JDAT or an EVNT, complete and inflated.

    `entries`: the first of its `count` events, as many as a payload may have; `tail`: the others, each with its length.
    `size`: bytes that it holds in memory.
    """

    nonce: bytes
    entries: list[bytes]
    count: int
    tail: bytes
    size: int


class _Stage(Enum):
    HEADER = "between messages"
    HELLO = "in a HELO"
    SKIP = "in a message that is skipped"
    NONCE = "in front of a payload"
    BODY = "in a JDAT"
    SCAN = "in an EVNT"
    CONTENT = "in a payload that has arrived"


_SERVERS: Final = (b"PONG", b"ACKN", b"VERS")
_OWN: Final = frozenset(range(0x20, 0x7F))


class CourierDecoder:
    """Decodes a client's bytes, split anywhere, into messages and payloads.

    `frame_bytes`: maximum size of a body, of an EVNT's stream, and of an event; `frame_events`: events of a payload that are
    cut one by one; `inflate`: limits of a payload's content. Memory use follows the received bytes, never an announced length.
    """

    def __init__(self, frame_bytes: int, frame_events: int, inflate: InflateLimits) -> None:
        self._frame_bytes = frame_bytes
        self._frame_events = frame_events
        self._inflate = inflate
        self._data = b""
        self._at = 0  # how far it is parsed
        self._base = 0  # offset in the connection of its first byte
        self._stage = _Stage.HEADER
        self._first = True  # no message is complete yet
        self._kind = MessageKind.UNKNOWN  # of the message that is skipped
        self._offset = 0  # of the current message
        self._sample = b""
        self._left = 0  # bytes of its body still to come; of an EVNT, that may come
        self._endless = False
        self._body: bytes | bytearray = b""  # of the current payload, compressed
        self._stream = ZlibStream(inflate)
        self._inflated_to = 0  # position in it
        self._entries = Entries(0, 0)
        self._work = 0
        self._complete: MessageKind | Payload | None = None
        self._failed: ProtocolError | None = None
        self.busy = False
        """It stopped after enough work: call `receive` again, with or without bytes."""
        self.arriving: bytes | None = None
        """The nonce of the current payload."""

    def partial_bytes(self) -> int:
        """Returns the bytes kept for an incomplete message; above 0 inside any message, even if nothing of it is kept."""
        partial_bytes = len(self._data) - self._at + len(self._body) + self._entries.partial_bytes
        return partial_bytes if self._stage is _Stage.HEADER else max(partial_bytes, 1)

    @property
    def span(self) -> tuple[int, int]:
        """Where the message that was yielded last begins and ends, in bytes from the connection's start."""
        return self._offset, self._base + self._at

    @property
    def head(self) -> bytes:
        """The first bytes of that message, at most `SAMPLE`."""
        return self._sample

    def receive(self, data: bytes) -> Iterator[MessageKind | Payload]:
        """Yields what `data` completes. Exhaust it before the next call. It does a bounded part of the work: see `busy`.

        Raises `ProtocolError` where the stream becomes invalid; every later call raises it again.
        """
        if self._failed is not None:
            raise self._failed
        if data:
            self._base += self._at
            self._data = data if self._at == len(self._data) else self._data[self._at :] + data
            self._at = 0
        self._work = WORK
        problem: tuple[str, str | None] | None = None
        try:
            while self._work > 0 and self._step():
                if self._complete is not None:
                    self._first = False
                    self._work -= MESSAGE_WORK
                    yield self._complete
                    self._complete = None
        except ProtocolError as error:
            problem = str(error), error.limit
        if problem is not None:  # outside the handler, so that the fault holds no reference to its cause
            raise self._fault(*problem)
        self.busy = self._work <= 0
        if self._at == len(self._data):  # a connection that rests does not keep what it has read
            self._base, self._data, self._at = self._base + self._at, b"", 0

    def cut_off(self) -> ProtocolError:
        """Returns the fault of a peer that closes inside a message."""
        return self._fault("the stream ends inside a message")

    def _step(self) -> bool:
        """Parses one part of a message and puts what it completes into `_complete`. False: more bytes are needed."""
        stage = self._stage
        if stage is _Stage.CONTENT:
            return self._content()
        if stage is _Stage.BODY:
            return self._collect()
        if stage is _Stage.SCAN:
            return self._scan()
        there = len(self._data) - self._at
        if stage is _Stage.HEADER:
            if there < HEADER.size:
                self._sample = self._data[self._at : self._at + SAMPLE]
                self._offset = self._base + self._at
                return False
            self._begin()
        elif stage is _Stage.NONCE:
            if there < NONCE_BYTES:
                return False
            self._begin_payload()
        elif stage is _Stage.HELLO:
            if there < self._left:
                return False
            self._at += self._left
            self._done(MessageKind.HELO)
        else:
            skipped = min(there, self._left)
            self._at += skipped
            self._left -= skipped
            if self._left:
                return False
            self._done(self._kind)
        return True

    def _done(self, message: MessageKind | Payload) -> None:
        self._complete = message
        self._stage = _Stage.HEADER

    def _begin(self) -> None:
        """Reads a header: the kind of message, and whether it is allowed."""
        kind, length = HEADER.unpack_from(self._data, self._at)
        self._offset = self._base + self._at
        self._sample = self._data[self._at : self._at + SAMPLE]
        self._at += HEADER.size
        self._left = length
        if kind in (b"JDAT", b"EVNT"):
            self._payload_length(kind, length)
            self._stage = _Stage.NONCE
        elif kind == b"PING":
            if length:
                raise ProtocolError(f"a PING with a body of {length} bytes")
            self._done(MessageKind.PING)
        elif kind == b"HELO" and self._first:
            if length > HELLO_BYTES:
                raise ProtocolError(f"a HELO of {length} bytes; it has at most {HELLO_BYTES}")
            self._stage = _Stage.HELLO
        elif kind in _SERVERS:
            raise ProtocolError(f"{kind.decode()} from a client; only a server sends that")
        elif not _OWN.issuperset(kind):
            tls = self._first and kind[:2] == b"\x16\x03"
            raise ProtocolError("a TLS client on a port without TLS" if tls else "not a message")
        elif length > self._frame_bytes:
            raise ProtocolError(f"a message of {length} bytes", limit=FRAME_BYTES)
        else:
            self._kind = MessageKind.COMPLAINT if kind == b"????" else MessageKind.UNKNOWN
            self._stage = _Stage.SKIP

    def _payload_length(self, kind: bytes, length: int) -> None:
        self._endless = kind == b"EVNT"
        if self._endless:
            if length != STREAMING:
                raise ProtocolError(f"an EVNT of {length} bytes; its length is always FFFFFFFF")
            self._left = self._frame_bytes
        elif length <= NONCE_BYTES:
            raise ProtocolError(f"a JDAT of {length} bytes has no payload")
        elif length > self._frame_bytes:
            raise ProtocolError(f"a message of {length} bytes", limit=FRAME_BYTES)

    def _begin_payload(self) -> None:
        self.arriving = self._data[self._at : self._at + NONCE_BYTES]
        self._at += NONCE_BYTES
        self._left -= NONCE_BYTES
        self._body = bytearray()
        self._stream = ZlibStream(self._inflate)
        self._stage = _Stage.SCAN if self._endless else _Stage.BODY

    def _collect(self) -> bool:
        """Collects more of a JDAT, still compressed: an unfinished payload must not grow."""
        there = min(len(self._data) - self._at, self._left)
        self._take(there)
        if self._left:
            return False
        self._begin_content()
        return True

    def _scan(self) -> bool:
        """Collects more of an EVNT and inflates it only to find its end. Inflating it again is cheap. Keeping the output would
        let a client that never finishes take the others' memory with a few bytes.
        """
        there = min(len(self._data) - self._at, self._left)
        if not there and self._stream.hungry:
            if not self._left:
                raise ProtocolError("an EVNT that does not end", limit=FRAME_BYTES)
            return False
        piece, stop = self._stream.inflate(self._data, self._at, self._at + there)
        self._work -= max(len(piece), INPUT_WORK * (stop - self._at))
        if stop < self._at:
            self._take_back(self._at - stop)
        else:
            self._take(stop - self._at)
        if self._stream.ended:
            self._begin_content()
        return True

    def _take(self, size: int) -> None:
        piece = self._data[self._at : self._at + size]
        if self._body:
            self._body += piece
        else:
            self._body = piece if size == self._left else bytearray(piece)
        self._at += size
        self._left -= size

    def _take_back(self, size: int) -> None:
        """Returns the last bytes taken: the inflater had read beyond its stream, in part during an earlier `receive`."""
        self._data = bytes(self._body[-size:]) + self._data[self._at :]
        self._body = self._body[:-size]
        self._base += self._at - size
        self._at = 0
        self._left += size

    def _begin_content(self) -> None:
        self._stream = ZlibStream(self._inflate, len(self._body))
        self._entries = Entries(self._frame_events, self._frame_bytes)
        self._inflated_to = 0
        self._stage = _Stage.CONTENT

    def _content(self) -> bool:
        """Inflates and cuts some more of a payload that has arrived."""
        stream, entries, body = self._stream, self._entries, self._body
        if entries.ready:
            self._work -= ENTRY_WORK * entries.cut()
        elif stream.ended:
            self._end_payload()
        elif self._inflated_to == len(body) and stream.hungry:
            raise ProtocolError("a JDAT ends inside its compressed content")
        else:
            before = self._inflated_to
            piece, self._inflated_to = stream.inflate(body, before, len(body))
            self._work -= max(len(piece), INPUT_WORK * (self._inflated_to - before))
            entries.feed(piece)
        return True

    def _end_payload(self) -> None:
        assert self.arriving is not None
        entries = self._entries
        entries.finish()
        more = len(self._body) - self._inflated_to
        if more:
            raise ProtocolError(f"{more} bytes follow the compressed content of a JDAT")
        partial_bytes = entries.partial_bytes
        self._done(Payload(self.arriving, entries.entries, entries.count, entries.tail(), partial_bytes))
        self._body, self._entries, self.arriving = b"", Entries(0, 0), None

    def _fault(self, problem: str, limit: str | None = None) -> ProtocolError:
        self._failed = ProtocolError(problem, limit=limit, offset=self._offset, sample=self._sample)
        self._data, self._at = b"", 0
        self._entries.clear()
        self._body, self._stage = b"", _Stage.HEADER
        self.busy, self.arriving = False, None
        return self._failed


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
    body = nonce + zlib.compress(b"".join(map(entry, events)), level)
    return HEADER.pack(b"JDAT", len(body)) + body


def evnt(nonce: bytes, events: Iterable[bytes], *, level: int = 3) -> bytes:
    """Makes a payload as present clients send it, after a server's VERS has allowed it."""
    return HEADER.pack(b"EVNT", STREAMING) + nonce + zlib.compress(b"".join(map(entry, events)), level)
