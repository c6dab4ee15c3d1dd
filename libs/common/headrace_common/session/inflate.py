"""Bounded inflating: decompresses one slice at a time and never beyond the limits.

A slice is at most 1 MiB, so that the caller can let the event loop run in between.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final, cast

from isal import isal_zlib

from headrace_common.operations.errors import ProtocolError

IsalError: Final = cast("type[Exception]", isal_zlib.error)

SLICE: Final = 1 << 20
"""Bytes of output per slice."""

FIRST_WINDOW: Final = 4 << 10
LAST_WINDOW: Final = 8 << 10
"""Input bytes per decompressor call. The window starts small at each gzip member, because the input after a member's end is
copied: 16 MiB of twenty-byte members would otherwise take hours. It stays small, because input need not give output: of blocks
without any, which have ten bits, 8 KiB take 3 ms."""

INPUT_WORK: Final = 16
"""The work of inflating a byte of input, in bytes of output that take as long: at least this, whatever comes out."""

GZIP_WBITS: Final = 31
GZIP_MAGIC: Final = b"\x1f\x8b"
ZLIB_WBITS: Final = 15


@dataclass(frozen=True, slots=True)
class InflateLimits:
    """`total`: bytes of output; `ratio`: output over input, checked once the output exceeds `ratio_from` bytes."""

    total: int
    ratio: float
    ratio_from: int = 1 << 20


def inflate_gzip(data: bytes | memoryview, limits: InflateLimits) -> Iterator[bytes]:
    """Yields the content of all gzip members of `data`, in order (RFC 1952; zero padding after them is legal).

    Some slices are empty: a window of input may give no output. Raises `ProtocolError`: with `limit` set if a limit was exceeded,
    without it if the data is corrupt or ends inside a member.
    """
    view = memoryview(data)
    gauge = Gauge(len(data), limits)
    position = 0
    while position < len(view):
        if view[position] == 0 and position:
            yield from _padding(view, position)
            return
        position = yield from _member(view, position, GZIP_WBITS, gauge)


def _padding(view: memoryview, position: int) -> Iterator[bytes]:
    """Yields an empty slice for each slice of zeros from `position` to the end. Raises `ProtocolError` if there is more."""
    for start in range(position, len(view), SLICE):
        rest = view[start : start + SLICE].tobytes()
        if rest != bytes(len(rest)):
            raise ProtocolError("bytes other than padding follow the last gzip member")
        yield b""


def inflate_zlib(data: bytes | memoryview, limits: InflateLimits) -> Iterator[bytes]:
    """Returns the content of one zlib stream (RFC 1950) that must be the whole of `data`. Otherwise as `inflate_gzip`."""
    return _only_stream(memoryview(data), ZLIB_WBITS, limits)


def inflate_stream(data: bytes | memoryview, limits: InflateLimits) -> Iterator[bytes]:
    """Returns the same for a zlib stream or a gzip member: its first two bytes say which."""
    view = memoryview(data)
    return _only_stream(view, GZIP_WBITS if bytes(view[:2]) == GZIP_MAGIC else ZLIB_WBITS, limits)


def _only_stream(view: memoryview, wbits: int, limits: InflateLimits) -> Iterator[bytes]:
    end = yield from _member(view, 0, wbits, Gauge(len(view), limits), LAST_WINDOW)
    if end != len(view):
        raise ProtocolError(f"{len(view) - end} bytes follow the {'gzip' if wbits == GZIP_WBITS else 'zlib'} stream")


class Gauge:
    """Checks the output against the limits."""

    def __init__(self, size: int, limits: InflateLimits) -> None:
        self._limits = limits
        self._allowed = size * limits.ratio
        self._total = 0

    def room(self) -> int:
        """Returns the maximum size of the next slice. It allows one byte beyond the limit, so that an excess shows."""
        return min(SLICE, self._limits.total - self._total + 1)

    def count(self, size: int) -> None:
        """Counts inflated bytes. Raises `ProtocolError` beyond a limit."""
        self._total += size
        if self._total > self._limits.total:
            raise ProtocolError(f"inflates beyond {self._limits.total} bytes", limit="LIMITS__INFLATED_BYTES")
        if self._total > self._limits.ratio_from and self._total > self._allowed:
            raise ProtocolError(f"inflates more than {self._limits.ratio:g} fold", limit="LIMITS__RATIO")


def _member(
    view: memoryview, position: int, wbits: int, gauge: Gauge, window: int = FIRST_WINDOW
) -> Generator[bytes, None, int]:
    """Inflates one stream from `position`. Returns the position after it."""
    decompressor = isal_zlib.decompressobj(wbits=wbits)
    rest: bytes | memoryview = b""
    full = False  # the last slice filled its room: the decompressor may hold more output without new input
    while not decompressor.eof:
        if not rest and not full:
            rest = view[position : position + window]
            if not rest:
                raise ProtocolError("the compressed data ends inside a stream")
            position += len(rest)
            window = min(2 * window, LAST_WINDOW)
        room = gauge.room()
        try:
            out = decompressor.decompress(rest, room)
        except (IsalError, ValueError) as error:
            raise ProtocolError(f"does not inflate: {error}") from error
        rest = decompressor.unconsumed_tail
        full = len(out) == room
        gauge.count(len(out))
        yield out
    return position - len(decompressor.unused_data)
