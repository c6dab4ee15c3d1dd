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

_IsalError: Final = cast("type[Exception]", isal_zlib.error)

SLICE: Final = 1 << 20
"""Bytes of output per slice."""

WINDOW: Final = 8 << 10
"""Input bytes per decompressor call: few, because the input after a gzip member's end is copied (16 MiB of twenty-byte members
would otherwise take hours), and because input need not give output: of blocks without any, which have ten bits, 8 KiB take 3 ms.
"""

INPUT_WORK: Final = 16
"""The work of inflating a byte of input, in bytes of output that take as long: at least this, whatever comes out."""

GZIP_MAGIC: Final = b"\x1f\x8b"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
ZSTD_WINDOW_LOG: Final = 23
"""A zstd frame may ask for a window of up to 8 MiB, which RFC 8878, 3.1.1.1.2, has every reader support: levels up to 19. The
window takes memory beyond the output, so larger ones are refused."""

MEMBERS: Final = 256
MEMBER_BYTES: Final = 48
"""Gzip members or zstd frames that any payload may have, and bytes for each further one: less than what fluentd makes of a short
event. Each takes 10 µs, and an empty one has 9 bytes."""

new_zlib = partial(isal_zlib.decompressobj, wbits=15)
_new_gzip = partial(isal_zlib.decompressobj, wbits=31)
_new_either = partial(isal_zlib.decompressobj, wbits=47)
_new_zstd = partial(zstd.ZstdDecompressor, options={zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG})


def inflate_gzip(data: bytes | memoryview, most: int) -> Iterator[bytes]:
    """Yields the content of all gzip members of `data`, in order (RFC 1952): `most` bytes at most.

    Some slices are empty: a window of input may give no output. Raises `ProtocolError`: with `limit` set if there are more,
    without it if the data is corrupt, ends inside a member, or has more members than any client sends.
    """
    return _members(memoryview(data), _new_gzip, most)


def inflate_zstd(data: bytes | memoryview, most: int) -> Iterator[bytes]:
    """Yields the content of all zstd frames of `data`, in order (RFC 8878; skippable frames are skipped).

    Otherwise like `inflate_gzip`. A frame whose window exceeds 2 ** `ZSTD_WINDOW_LOG` bytes counts as corrupt.
    """
    return _members(memoryview(data), _new_zstd, most)


def _members(view: memoryview, make: Callable[[], Any], most: int) -> Iterator[bytes]:
    inflated = Inflated(most)
    position = members = 0
    while position < len(view):
        members += 1
        if members > MEMBERS + len(view) // MEMBER_BYTES:
            raise ProtocolError(f"more than {members - 1} compressed members in {len(view)} bytes")
        position = yield from _stream(view, position, make(), inflated)


def inflate_zlib(data: bytes | memoryview, most: int) -> Iterator[bytes]:
    """Returns the content of one zlib stream (RFC 1950) that must be the whole of `data`. Otherwise as `inflate_gzip`."""
    return _only_stream(memoryview(data), new_zlib, most)


def inflate_stream(data: bytes | memoryview, most: int) -> Iterator[bytes]:
    """Returns the same for a zlib stream or a gzip member: its first two bytes say which."""
    return _only_stream(memoryview(data), _new_either, most)


def _only_stream(view: memoryview, make: Callable[[], Any], most: int) -> Iterator[bytes]:
    end = yield from _stream(view, 0, make(), Inflated(most))
    if end != len(view):
        raise ProtocolError(f"{len(view) - end} bytes follow the stream")


def _stream(view: memoryview, position: int, decompressor: Any, inflated: Inflated) -> Generator[bytes, None, int]:
    """Inflates one stream from `position`. Returns the position after it."""
    while not decompressor.eof:
        piece = view[position : position + WINDOW]
        if not piece:
            raise ProtocolError("the compressed data ends inside a stream")
        position += len(piece)
        yield from inflated.slices(decompressor, piece)
    return position - len(decompressor.unused_data)


class Inflated:
    """The content of a payload, one stream or several, which may be `most` bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._total = 0

    def slices(self, decompressor: Any, piece: bytes | memoryview) -> Iterator[bytes]:
        """Yields what the next input gives, up to the stream's end. Raises `ProtocolError` as `inflate_gzip`."""
        full = False  # the last slice filled its room: the decompressor may hold more output without new input
        while (piece or full) and not decompressor.eof:
            room = min(SLICE, self._most - self._total + 1)  # one byte beyond the limit, so that an excess shows
            try:
                out = decompressor.decompress(piece, room)
            except (_IsalError, zstd.ZstdError, ValueError) as error:
                raise ProtocolError(f"does not inflate: {error}") from error
            # zstd keeps what it has not consumed
            piece = b"" if isinstance(decompressor, zstd.ZstdDecompressor) else decompressor.unconsumed_tail
            full = len(out) == room
            self._total += len(out)
            if self._total > self._most:
                raise ProtocolError(f"inflates beyond {self._most} bytes", limit="LIMITS__INFLATED_BYTES")
            yield out
