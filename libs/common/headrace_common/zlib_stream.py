"""A zlib stream inflated as it arrives, a slice at a time, within the limits: for protocols whose end of a part is where
its stream ends, or that must judge a part before anything of it may be published.
"""

from __future__ import annotations

from typing import Final

from isal import isal_zlib

from headrace_common.errors import ProtocolError
from headrace_common.inflate import (
    FIRST_WINDOW,
    LAST_WINDOW,
    SLICE,
    ZLIB_WBITS,
    InflateLimits,
    IsalError,
)

INFLATED_BYTES: Final = "LIMITS__INFLATED_BYTES"
RATIO: Final = "LIMITS__RATIO"

_DICTIONARY: Final = 0x20
"""In a stream's second byte: it needs a dictionary (RFC 1950, FDICT), which no protocol here agrees on."""


class ZlibStream:
    """One stream (RFC 1950), checksum included.

    `size` is its compressed size where that is announced: the ratio is judged against it at every slice. Where it is not
    known the ratio is judged at the end, so that the verdict never depends on how the bytes were split.
    """

    __slots__ = ("_full", "_inflate", "_limits", "_size", "_stream", "_taken", "_window", "total")

    def __init__(self, limits: InflateLimits, size: int | None = None) -> None:
        self._stream = isal_zlib.decompressobj(wbits=ZLIB_WBITS)
        self._inflate = self._stream.decompress
        self._limits = limits
        self._size = size
        self._window = FIRST_WINDOW
        self._taken = 0
        self._full = False
        self.total = 0
        """Bytes of output so far."""

    @property
    def ended(self) -> bool:
        """The stream is complete, and its checksum is right."""
        return bool(self._stream.eof)

    @property
    def hungry(self) -> bool:
        """It can give nothing more until it is given more."""
        return not self._full and not self._stream.eof

    def inflate(self, data: bytes | bytearray, at: int, end: int) -> tuple[bytes, int]:
        """At most 1 MiB of output from `data[at:end]`; and where in `data` it stopped.

        Some bytes in front of `at`, even of `data` given before, when its end shows that it had read ahead.

        Call it again from there until the stream has `ended`, or is `hungry` and all up to `end` was used. Raises
        `ProtocolError`: with `limit` set when a limit was exceeded, without when the stream is corrupt.
        """
        window = data[at : min(at + self._window, end)]
        self._window = min(2 * self._window, LAST_WINDOW)
        room = min(SLICE, self._limits.total - self.total + 1)
        stream = self._stream
        flags = at + 1 - self._taken
        if self._taken < 2 and flags < end and data[flags] & _DICTIONARY:  # the inflater says so only when more follows
            raise ProtocolError("does not inflate: it needs a dictionary")
        try:
            out: bytes = self._inflate(window, room)
        except (IsalError, ValueError) as error:
            raise ProtocolError(f"does not inflate: {error}") from error
        used = len(window) - len(stream.unconsumed_tail) - len(stream.unused_data)
        self._taken += used
        self._full = len(out) == room
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
        if (self._size is not None or self._stream.eof) and self.total > compressed * limits.ratio:
            raise ProtocolError(f"inflates more than {limits.ratio:g} fold", limit=RATIO)
