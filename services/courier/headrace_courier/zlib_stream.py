"""Inflates a zlib stream as it arrives, one slice at a time and within the limits. For protocols in which a part ends where
its stream ends, or which must check a whole part before they publish any of it.
"""

from __future__ import annotations

from typing import Any, Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.inflate import (
    FIRST_WINDOW,
    LAST_WINDOW,
    SLICE,
    ZLIB_WBITS,
    InflateLimits,
    IsalError,
)
from isal import isal_zlib

INFLATED_BYTES: Final = "LIMITS__INFLATED_BYTES"
RATIO: Final = "LIMITS__RATIO"

_DICTIONARY: Final = 0x20
"""Bit in a stream's second byte: it needs a preset dictionary (RFC 1950, FDICT), and no protocol here defines one."""


class ZlibStream:
    """One stream (RFC 1950), checksum included. It takes memory (87 KB) from its first byte to its last.

    `size`: its compressed size, if announced: the ratio is then checked against it at every slice. Otherwise the ratio is
    checked at the end, so that the result never depends on how the bytes were split.
    """

    __slots__ = ("_full", "_limits", "_size", "_stream", "_taken", "_window", "ended", "total")

    def __init__(self, limits: InflateLimits, size: int | None = None) -> None:
        self._stream: Any = None
        self._limits = limits
        self._size = size
        self._window = FIRST_WINDOW
        self._taken = 0
        self._full = False
        self.total = 0
        """Bytes of output so far."""
        self.ended = False
        """Whether the stream is complete, with a correct checksum."""

    @property
    def hungry(self) -> bool:
        """Whether it needs more input before it can give more output."""
        return not self._full and not self.ended

    def inflate(self, data: bytes | bytearray, at: int, end: int) -> tuple[bytes, int]:
        """Returns at most 1 MiB of output from `data[at:end]`, and the position in `data` where it stopped.

        That position may be before `at`, even within earlier `data`, if the stream's end shows that it had read ahead.

        Call it again from there until the stream has `ended`, or is `hungry` and everything up to `end` is used. Raises
        `ProtocolError`: with `limit` set if a limit was exceeded, without it if the stream is corrupt.
        """
        window = data[at : min(at + self._window, end)]
        self._window = min(2 * self._window, LAST_WINDOW)
        room = min(SLICE, self._limits.total - self.total + 1)
        stream = self._stream = self._stream or isal_zlib.decompressobj(wbits=ZLIB_WBITS)
        flags = at + 1 - self._taken
        if (
            self._taken < 2 and flags < end and data[flags] & _DICTIONARY
        ):  # the inflater reports it only after more input
            raise ProtocolError("does not inflate: it needs a dictionary")
        try:
            out: bytes = stream.decompress(window, room)
        except (IsalError, ValueError) as error:
            raise ProtocolError(f"does not inflate: {error}") from error
        used = len(window) - len(stream.unconsumed_tail) - len(stream.unused_data)
        self._taken += used
        self._full = len(out) == room
        if stream.eof:
            self.ended, self._stream = True, None
        self._count(len(out))
        return out, at + used

    def _count(self, size: int) -> None:
        limits = self._limits
        self.total += size
        if self.total > limits.total:
            raise ProtocolError(f"inflates beyond {limits.total} bytes", limit=INFLATED_BYTES)
        if self.total <= limits.ratio_from:
            return
        compressed = self._taken if self._size is None else self._size
        if (self._size is not None or self.ended) and self.total > compressed * limits.ratio:
            raise ProtocolError(f"inflates more than {limits.ratio:g} fold", limit=RATIO)
