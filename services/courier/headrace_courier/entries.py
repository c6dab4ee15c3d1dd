"""Cuts a payload's inflated content, piece by piece, into entries: each a length (u32, big-endian) and that number of bytes."""

from __future__ import annotations

import struct
from typing import Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.record import native

FRAME_EVENTS: Final = "LIMITS__FRAME_EVENTS"
FRAME_BYTES: Final = "LIMITS__FRAME_BYTES"

STEP: Final = 2048
"""Maximum entries that are cut in one call, so that a payload of only empty entries cannot block the loop."""

OVERHEAD: Final = 64
"""Bytes of memory that an entry takes beyond its own."""

BEYOND: Final = 10
"""A payload with more than this many times the allowed events is no mistake, and its client is disconnected: counting the
empty entries that 64 KiB can inflate to would take seconds."""

PREFIX: Final = 4
_LENGTH: Final = struct.Struct(">I").unpack_from


class Entries:
    """The entries of one payload, each at most `largest` bytes.

    It keeps the first `most` one by one, and the others as the bytes in which they came.
    """

    __slots__ = ("_bytes", "_have", "_largest", "_most", "_need", "_pieces", "_tail", "count", "entries")

    def __init__(self, most: int, largest: int) -> None:
        self.entries: list[bytes] = []
        self.count = 0
        self._most = most
        self._largest = largest
        self._tail: list[bytes] = []
        self._pieces: list[bytes] = []  # not cut yet
        self._have = 0  # bytes of them
        self._need = PREFIX  # bytes needed before anything can be cut
        self._bytes = 0  # of the entries that were cut

    def feed(self, piece: bytes) -> None:
        """Adds content. Then call `cut` until it is no longer `ready`."""
        if piece:
            self._pieces.append(piece)
            self._have += len(piece)

    @property
    def ready(self) -> bool:
        """Whether `cut` has work."""
        return self._have >= self._need

    @property
    def partial_bytes(self) -> int:
        """Bytes in memory."""
        return self._have + self._bytes + OVERHEAD * len(self.entries)

    def tail(self) -> bytes:
        """Returns the entries beyond the first `most`, lengths included."""
        return b"".join(self._tail)

    def cut(self) -> int:
        """Cuts some entries and returns how many. Raises `ProtocolError` if there are far too many, or one is too large."""
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces = []  # freed before anything is copied out of `data`: an entry can be large
        kept = min(STEP, self._most - self.count)
        if kept > 0:
            at, number = self._keep(data, kept)
        else:
            at, number = self._pass_by(data)
        self.count += number
        self._bytes += at
        self._have -= at
        if self._have:
            self._pieces = [data[at:]]
        if self.count > BEYOND * self._most:
            raise ProtocolError(f"a payload of more than {BEYOND} times {self._most} events", limit=FRAME_EVENTS)
        return number

    def clear(self) -> None:
        """Frees everything, even if others still refer to this object."""
        self.entries, self._tail, self._pieces = [], [], []
        self._have = self._bytes = 0

    def finish(self) -> None:
        """Ends the content. Raises `ProtocolError` if it ends inside an entry."""
        if self._have:
            raise ProtocolError("a payload ends inside an entry")

    def _allowed(self, size: int) -> int:
        """Returns the bytes that an entry of `size` bytes needs. Refuses a large one by its announced size, before it is
        assembled.
        """
        if size > self._largest:
            raise ProtocolError(f"an event of {size} bytes", limit=FRAME_BYTES)
        return PREFIX + size

    def _keep(self, data: bytes, most: int) -> tuple[int, int]:
        end = len(data)
        found, at = native.core.cut(data, self._largest, most)
        append, largest = found.append, self._largest
        self._need = PREFIX
        while end - at >= PREFIX and len(found) < most:
            start = at + PREFIX
            stop = start + _LENGTH(data, at)[0]
            if stop > end or stop - start > largest:
                self._need = self._allowed(stop - start)
                break
            append(data[start:stop])
            at = stop
        self.entries += found
        return at, len(found)

    def _pass_by(self, data: bytes) -> tuple[int, int]:
        at, end, number = 0, len(data), 0
        self._need = PREFIX
        while end - at >= PREFIX and number < STEP:
            stop = at + PREFIX + int(_LENGTH(data, at)[0])
            if stop > end or stop - at - PREFIX > self._largest:
                self._need = self._allowed(stop - at - PREFIX)
                break
            at = stop
            number += 1
        self._tail.append(data[:at])
        return at, number
