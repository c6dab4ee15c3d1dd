"""A stream of bytes, split anywhere, to messages of a type and a body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headrace_common.operations.errors import ProtocolError

from headrace_segment.wire.codes import FRAME_BYTES, HEADER, MAX_BODY

SAMPLE: Final = 16
WORK: Final = 1024
"""Messages that one call may look at: some milliseconds."""

Accept = Callable[[int, int], int]
"""Takes a message's type and length. Returns how many bytes of its body to take as one; the rest is read as messages. Raises
`ProtocolError` if the message may not come now."""


class MessageStream:
    """Cuts messages. `frame_bytes`: the longest body. Memory follows the bytes that arrived, never an announced length."""

    def __init__(self, frame_bytes: int, accept: Accept) -> None:
        self._frame_bytes = min(frame_bytes, MAX_BODY)
        self._accept = accept
        self._data = b""
        self._at = 0  # how far it is parsed
        self._base = 0  # offset in the connection of its first byte
        self._kind: int | None = None  # of the message whose body is under way
        self._left = 0
        self._body = bytearray()
        self.offset = 0
        """Where the message begins that was parsed last, in bytes from the stream's start."""
        self._sample = b""

    def partial_bytes(self) -> int:
        """Returns the bytes kept for an incomplete message; above 0 inside a message."""
        return len(self._data) - self._at + len(self._body) + (0 if self._kind is None else HEADER.size)

    def feed(self, data: bytes) -> None:
        """Takes more bytes."""
        if data:
            self._base += self._at
            self._data = data if self._at == len(self._data) else self._data[self._at :] + data
            self._at = 0

    def push_back(self, data: bytes) -> None:
        """Puts `data`, a message that came in parts, before all that is not parsed yet."""
        self._base += self._at - len(data)
        self._data = data + self._data[self._at :]
        self._at = 0

    def next(self) -> tuple[int, bytes] | None:
        """Returns the next message. None: more bytes are needed. Raises `ProtocolError`."""
        if self._kind is None:
            if len(self._data) - self._at < HEADER.size:
                return None
            self._begin()
        at, left = self._at, self._left
        if not self._body and len(self._data) - at >= left:
            body = self._data[at : at + left]
            self._at = at + left
        else:
            piece = self._data[at : at + left]
            self._body += piece
            self._at += len(piece)
            self._left -= len(piece)
            if self._left:
                self._rest()
                return None
            body = bytes(self._body)
            self._body = bytearray()
        kind, self._kind = self._kind, None
        assert kind is not None
        self._rest()
        return kind, body

    def _rest(self) -> None:
        """Frees what a connection that rests has read."""
        if self._at == len(self._data):
            self._base, self._data, self._at = self._base + self._at, b"", 0

    def _begin(self) -> None:
        kind, length = HEADER.unpack_from(self._data, self._at)
        self.offset = self._base + self._at
        self._sample = self._data[self._at : self._at + SAMPLE]
        if length > MAX_BODY:
            raise ProtocolError(f"a message of {length} bytes; the upper byte of a length is 0")
        left = self._accept(kind, length)
        if left > self._frame_bytes:
            raise ProtocolError(f"a message of {length} bytes", limit=FRAME_BYTES)
        self._kind, self._left = kind, left
        self._at += HEADER.size

    def fault(self, problem: str, limit: str | None = None) -> ProtocolError:
        """Returns a fault of the current message. Drops the bytes that are kept."""
        self._data, self._at, self._kind = b"", 0, None
        self._body = bytearray()
        return ProtocolError(problem, limit=limit, offset=self.offset, sample=self._sample)
