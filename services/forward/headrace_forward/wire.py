"""Forward on the wire: bytes to messages and back. No sockets, no clock; limits are constructor arguments.

A connection is a concatenation of msgpack objects without an outer length. A message is an array whose second element
decides its mode (fluentd, in_forward.rb `on_message`): an array (Forward), a str or bin (PackedForward, compressed or not),
anything else is a time (Message). Clients: fluentd, Fluent Bit, fluent-logger-golang, -python, @fluent-org/logger.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

import msgpack
import msgspec
from headrace_common.operations.errors import ProtocolError
from headrace_common.session.interface import SMALL
from headrace_common.session.parser import Cost, Parser, Steps, UpTo
from typing_extensions import override

from headrace_forward.kinds import ARRAY, ARRAY_HEADER, HEADER, KINDS, TEXTS, TIMES, array_size, new_unpacker

ELEMENTS: Final = 16
"""Maximum elements of a message, more than any client sends: each takes a place in a list."""

FIRST_PIECE: Final = UpTo(4 << 10)
PIECE: Final = UpTo(64 << 10)
"""Bytes of a message that are read at once."""

NIL_BYTE: Final = 0xC0
"""A heartbeat."""

BYTE_WORK: Final = 2
"""The work of reading a byte, as inflated bytes that take as long."""

ACK_KEY: Final = b"\x81\xa3ack"
"""A map of one entry, str "ack". The chunk follows as it was received: the same bytes, so the same type, go back."""


class EventTime(NamedTuple):
    """Ext type 0 of eight bytes: u32 seconds and u32 nanoseconds, big-endian, unsigned: valid until 2106."""

    seconds: int
    nanoseconds: int

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> EventTime:
        """Decodes the ext's eight bytes. Raises ValueError for any other length."""
        if len(data) != 8:
            raise ValueError(f"an EventTime has 8 bytes, not {len(data)}")
        return cls(*struct.unpack(">II", data))

    def encode(self) -> msgpack.ExtType:
        """Encodes it as the fixext 8 (d7 00) that every measured client sends."""
        return msgpack.ExtType(0, struct.pack(">II", *self))


class ForwardMessage:
    """One complete top-level array, cut into its elements but not decoded."""

    __slots__ = ("_payload_at", "elements", "listed", "option_index", "raw")

    def __init__(self, raw: bytes, elements: list[msgspec.Raw]) -> None:
        self.raw = raw
        self.elements = elements
        first = memoryview(elements[1])[0] if len(elements) > 1 else -1
        kind = KINDS[first] if first >= 0 else None
        self.option_index = 3 if kind in TIMES else 2
        """The position of the option map in this mode; the message may lack it."""
        self.listed = kind == ARRAY
        """Whether it is in Forward mode, with its entries in an array."""
        self._payload_at = 1 + HEADER.get(first, 0) if kind in TEXTS else 0

    def element(self, index: int) -> bytes:
        """Returns the bytes of element `index`, or empty bytes."""
        return bytes(self.elements[index]) if index < len(self.elements) else b""

    def entries(self) -> memoryview:
        """Returns the entries of Forward mode, one after the other, without a copy."""
        array = memoryview(self.elements[1])
        return array[1 + ARRAY_HEADER.get(array[0], 0) :]

    def payload(self) -> memoryview | None:
        """Returns the content of packed entries, without a copy; None in another mode."""
        return memoryview(self.elements[1])[self._payload_at :] if self._payload_at else None


_elements = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


class ForwardDecoder(Parser[ForwardMessage]):
    """Decodes bytes, split anywhere, into messages of at most `frame_bytes`.

    msgpack's unpacker scans each byte once and continues where it stopped.
    """

    def __init__(self, frame_bytes: int) -> None:
        self.frame_bytes = frame_bytes
        """A login has less than what comes after it."""
        super().__init__()

    def may_be_whole(self, data: bytes) -> bool:
        """Returns whether `data` begins a message and is as short as a small one."""
        fresh = not self._buffer and self._base == self._offset and not self.busy and self._failed is None
        return fresh and 0 < len(data) <= min(SMALL, self.frame_bytes)

    def passed(self, data: bytes) -> None:
        """Goes on after `data`, a whole message."""
        self._base = self._offset = self._base + len(data)

    @override
    def messages(self) -> Steps:
        while True:
            self.begins()
            piece = yield FIRST_PIECE
            if piece[0] == NIL_BYTE:
                yield Cost(len(piece))
                self.unread(piece.lstrip(bytes((NIL_BYTE,))))
            elif KINDS[piece[0]] == ARRAY:
                raw: bytes | bytearray = piece
                unpacker = new_unpacker()
                unpacker.feed(piece)
                while not (end := _end(unpacker)):
                    self.held = 2 * len(raw)  # with the unpacker's copy
                    if len(raw) > self.frame_bytes:
                        raise ProtocolError("a message is too large", limit="LIMITS__FRAME_BYTES")
                    if type(raw) is bytes:
                        raw = bytearray(raw)
                    raw += (piece := (yield PIECE))
                    unpacker.feed(piece)
                    yield Cost(BYTE_WORK * len(piece))
                if end > self.frame_bytes:
                    raise ProtocolError("a message is too large", limit="LIMITS__FRAME_BYTES")
                if end < len(raw):
                    self.unread(bytes(memoryview(raw)[end:]))
                    raw = raw[:end]
                message = _cut(bytes(raw))
                del unpacker, piece, raw  # they may have copies
                yield message
                del message  # not kept while nothing comes
            else:
                raise ProtocolError("neither a message nor a heartbeat")


def _end(unpacker: Any) -> int:
    """Returns how many bytes the first object that `unpacker` was fed has; 0 if it is not whole. Raises `ProtocolError`."""
    try:
        unpacker.skip()
    except msgpack.OutOfData:
        return 0
    except msgpack.StackError:
        raise ProtocolError("nested too deep to be read", limit="LIMITS__DEPTH") from None
    except (msgpack.FormatError, msgpack.BufferFull, ValueError) as error:
        raise ProtocolError(f"not msgpack: {type(error).__name__} {error}".strip()) from None
    return int(unpacker.tell())


def _cut(raw: bytes) -> ForwardMessage:
    """Cuts a whole message into its elements. Raises `ProtocolError`."""
    size = array_size(raw) or 0
    if size > ELEMENTS:
        raise ProtocolError(f"a message of {size} elements")
    try:
        return ForwardMessage(raw, _elements(raw))
    except RecursionError:
        raise ProtocolError("nested too deep to be read", limit="LIMITS__DEPTH") from None
    except msgspec.MsgspecError as error:  # an ext of 4 GiB, which msgpack takes for empty
        raise ProtocolError(f"not msgpack: {error}") from None
