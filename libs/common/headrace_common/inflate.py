"""Bounded inflating: a compressed part becomes bytes a slice at a time, and never more of them than the limits allow.

A slice is at most 1 MiB, so that whoever drives this can let the event loop turn in between.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final, cast

from isal import isal_zlib

from headrace_common.errors import ProtocolError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

IsalError: Final = cast("type[Exception]", isal_zlib.error)

SLICE: Final = 1 << 20
"""Bytes of output per slice."""

FIRST_WINDOW: Final = 4 << 10
LAST_WINDOW: Final = 256 << 10
"""Input given to a decompressor at once. It starts small at each gzip member, because what is left behind a member's end
is copied: 16 MiB of twenty-byte members would otherwise cost hours."""

BREATH: Final = 512
"""Members after which an empty slice is yielded, so that a body of tiny members cannot hold the loop."""

GZIP_WBITS: Final = 31
ZLIB_WBITS: Final = 15

ZSTD_WINDOW_LOG: Final = 23
"""A zstd frame may ask its reader for a window of up to 8 MiB (what RFC 8878, 3.1.1.1.2, has every reader support): levels up
to 19. It is memory beyond the output, so more is refused."""


@dataclass(frozen=True, slots=True)
class InflateLimits:
    """`total`: bytes of output; `ratio`: output over input, judged once the output is above `ratio_from` bytes."""

    total: int
    ratio: float
    ratio_from: int = 1 << 20


def inflate_gzip(data: bytes | memoryview, limits: InflateLimits) -> Iterator[bytes]:
    """The content of all gzip members of `data`, one after the other (RFC 1952; zero padding behind them is legal).

    Yields slices, some of them empty. Raises `ProtocolError`: with `limit` set when a limit was exceeded, without when the
    data is corrupt or ends inside a member.
    """
    view = memoryview(data)
    gauge = _Gauge(len(data), limits)
    position = 0
    members = 0
    while position < len(view):
        if view[position] == 0 and members:
            if any(view[position:]):
                raise ProtocolError("bytes other than padding follow the last gzip member")
            return
        position = yield from _member(view, position, GZIP_WBITS, gauge)
        members += 1
        if members % BREATH == 0:
            yield b""


def inflate_zstd(data: bytes | memoryview, limits: InflateLimits) -> Iterator[bytes]:
    """The content of all zstd frames of `data`, one after the other (RFC 8878; skippable frames are skipped).

    Otherwise as `inflate_gzip`; a frame whose window is above 2 ** `ZSTD_WINDOW_LOG` bytes counts as corrupt.
    """
    view = memoryview(data)
    gauge = _Gauge(len(data), limits)
    position = 0
    frames = 0
    while position < len(view):
        position = yield from _zstd_frame(view, position, gauge)
        frames += 1
        if frames % BREATH == 0:
            yield b""


def inflate_zlib(data: bytes | memoryview, limits: InflateLimits) -> Iterator[bytes]:
    """The content of one zlib stream (RFC 1950) that must be the whole of `data`. Otherwise as `inflate_gzip`."""
    view = memoryview(data)
    end = yield from _member(view, 0, ZLIB_WBITS, _Gauge(len(data), limits), LAST_WINDOW)  # there is only one
    if end != len(view):
        raise ProtocolError(f"{len(view) - end} bytes follow the zlib stream")


def _zstd_frame(view: memoryview, position: int, gauge: _Gauge) -> Generator[bytes, None, int]:
    """As `_member`, for one zstd frame."""
    decompressor = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG})
    window = FIRST_WINDOW
    while not decompressor.eof:
        piece: bytes | memoryview = b""
        if decompressor.needs_input:
            piece = view[position : position + window]
            if not piece:
                raise ProtocolError("the compressed data ends inside a stream")
            position += len(piece)
            window = min(2 * window, LAST_WINDOW)
        try:
            out = decompressor.decompress(piece, gauge.room())
        except (zstd.ZstdError, ValueError) as error:
            raise ProtocolError(f"does not inflate: {error}") from error
        gauge.count(len(out))
        if out:
            yield out
    return position - len(decompressor.unused_data)


class _Gauge:
    """Counts output against the limits."""

    def __init__(self, size: int, limits: InflateLimits) -> None:
        self._limits = limits
        self._allowed = size * limits.ratio
        self._total = 0

    def room(self) -> int:
        """How much the next slice may hold: one byte beyond the limit, so that exceeding it shows."""
        return min(SLICE, self._limits.total - self._total + 1)

    def count(self, size: int) -> None:
        self._total += size
        if self._total > self._limits.total:
            raise ProtocolError(f"inflates beyond {self._limits.total} bytes", limit="LIMITS__INFLATED_BYTES")
        if self._total > self._limits.ratio_from and self._total > self._allowed:
            raise ProtocolError(f"inflates more than {self._limits.ratio:g} fold", limit="LIMITS__RATIO")


def _member(
    view: memoryview, position: int, wbits: int, gauge: _Gauge, window: int = FIRST_WINDOW
) -> Generator[bytes, None, int]:
    """Inflates one stream from `position`; the generator's value is the position behind it."""
    decompressor = isal_zlib.decompressobj(wbits=wbits)
    rest: bytes | memoryview = b""
    full = False  # the last slice: there may be more in the decompressor than is left of the input
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
        if out:
            yield out
    return position - len(decompressor.unused_data)
