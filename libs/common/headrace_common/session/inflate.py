"""Bounded inflating: decompresses one slice at a time and never beyond the limits.

A slice is at most 1 MiB, so that the caller can let the event loop run in between.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any, Final, cast

from isal import isal_zlib

from headrace_common.operations.errors import ProtocolError

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

IsalError: Final = cast("type[Exception]", isal_zlib.error)

SLICE: Final = 1 << 20
"""Bytes of output per slice."""

WINDOW: Final = 8 << 10
"""Input bytes per decompressor call: few, because the input after a gzip member's end is copied (16 MiB of twenty-byte members
would otherwise take hours), and because input need not give output: of blocks without any, which have ten bits, 8 KiB take 3 ms.
"""

INPUT_WORK: Final = 16
"""The work of inflating a byte of input, in bytes of output that take as long: at least this, whatever comes out."""

GZIP_WBITS: Final = 31
GZIP_MAGIC: Final = b"\x1f\x8b"
ZLIB_WBITS: Final = 15
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
ZSTD_WINDOW_LOG: Final = 23
"""A zstd frame may ask for a window of up to 8 MiB, which RFC 8878, 3.1.1.1.2, has every reader support: levels up to 19. The
window takes memory beyond the output, so larger ones are refused."""

MEMBERS: Final = 256
MEMBER_BYTES: Final = 48
"""Gzip members or zstd frames that any payload may have, and bytes for each further one: less than what fluentd makes of a short
event. Each takes 10 µs, and an empty one has 9 bytes."""

_gzip = partial(isal_zlib.decompressobj, wbits=GZIP_WBITS)
_zstd = partial(zstd.ZstdDecompressor, options={zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG})


def inflate_gzip(data: bytes | memoryview, most: int) -> Iterator[bytes]:
    """Yields the content of all gzip members of `data`, in order (RFC 1952): `most` bytes at most.

    Some slices are empty: a window of input may give no output. Raises `ProtocolError`: with `limit` set if there are more,
    without it if the data is corrupt, ends inside a member, or has more members than any client sends.
    """
    return _members(memoryview(data), _gzip, most)


def inflate_zstd(data: bytes | memoryview, most: int) -> Iterator[bytes]:
    """Yields the content of all zstd frames of `data`, in order (RFC 8878; skippable frames are skipped).

    Otherwise like `inflate_gzip`. A frame whose window exceeds 2 ** `ZSTD_WINDOW_LOG` bytes counts as corrupt.
    """
    return _members(memoryview(data), _zstd, most)


def _members(view: memoryview, make: Callable[[], Any], most: int) -> Iterator[bytes]:
    gauge = Gauge(most)
    position = members = 0
    while position < len(view):
        members += 1
        if members > MEMBERS + len(view) // MEMBER_BYTES:
            raise ProtocolError(f"more than {members - 1} compressed members in {len(view)} bytes")
        position = yield from _member(view, position, make(), gauge)


def inflate_zlib(data: bytes | memoryview, most: int) -> Iterator[bytes]:
    """Returns the content of one zlib stream (RFC 1950) that must be the whole of `data`. Otherwise as `inflate_gzip`."""
    return _only_stream(memoryview(data), ZLIB_WBITS, most)


def inflate_stream(data: bytes | memoryview, most: int) -> Iterator[bytes]:
    """Returns the same for a zlib stream or a gzip member: its first two bytes say which."""
    view = memoryview(data)
    return _only_stream(view, GZIP_WBITS if bytes(view[:2]) == GZIP_MAGIC else ZLIB_WBITS, most)


def _only_stream(view: memoryview, wbits: int, most: int) -> Iterator[bytes]:
    end = yield from _member(view, 0, isal_zlib.decompressobj(wbits=wbits), Gauge(most))
    if end != len(view):
        raise ProtocolError(f"{len(view) - end} bytes follow the {'gzip' if wbits == GZIP_WBITS else 'zlib'} stream")


class Gauge:
    """Counts the output of a payload, which may be `most` bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._total = 0

    def room(self) -> int:
        """Returns the maximum size of the next slice. It allows one byte beyond the limit, so that an excess shows."""
        return min(SLICE, self._most - self._total + 1)

    def count(self, size: int) -> None:
        """Counts inflated bytes. Raises `ProtocolError` beyond the limit."""
        self._total += size
        if self._total > self._most:
            raise ProtocolError(f"inflates beyond {self._most} bytes", limit="LIMITS__INFLATED_BYTES")


def _member(view: memoryview, position: int, decompressor: Any, gauge: Gauge) -> Generator[bytes, None, int]:
    """Inflates one stream from `position`. Returns the position after it."""
    rest: bytes | memoryview = b""
    full = False  # the last slice filled its room: the decompressor may hold more output without new input
    while not decompressor.eof:
        if not rest and not full:
            rest = view[position : position + WINDOW]
            if not rest:
                raise ProtocolError("the compressed data ends inside a stream")
            position += len(rest)
        room = gauge.room()
        try:
            out = decompressor.decompress(rest, room)
        except (IsalError, zstd.ZstdError, ValueError) as error:
            raise ProtocolError(f"does not inflate: {error}") from error
        rest = b"" if isinstance(decompressor, zstd.ZstdDecompressor) else decompressor.unconsumed_tail  # zstd keeps it
        full = len(out) == room
        gauge.count(len(out))
        yield out
    return position - len(decompressor.unused_data)
