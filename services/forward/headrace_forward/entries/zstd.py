"""Bounded inflating of zstd, as `headrace_common.session.inflate` does it for gzip."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.inflate import FIRST_WINDOW, LAST_WINDOW, Gauge, InflateLimits

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

ZSTD_WINDOW_LOG: Final = 23
"""A zstd frame may ask for a window of up to 8 MiB, which RFC 8878, 3.1.1.1.2, has every reader support: levels up to 19. The
window takes memory beyond the output, so larger ones are refused."""


def inflate_zstd(data: bytes | memoryview, limits: InflateLimits) -> Iterator[bytes]:
    """Yields the content of all zstd frames of `data`, in order (RFC 8878; skippable frames are skipped).

    Otherwise like `inflate_gzip`. A frame whose window exceeds 2 ** `ZSTD_WINDOW_LOG` bytes counts as corrupt.
    """
    view = memoryview(data)
    gauge = Gauge(len(data), limits)
    position = 0
    while position < len(view):
        position = yield from _zstd_frame(view, position, gauge)


def _zstd_frame(view: memoryview, position: int, gauge: Gauge) -> Generator[bytes, None, int]:
    """Inflates one zstd frame from `position`. Returns the position after it."""
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
        yield out
    return position - len(decompressor.unused_data)
