"""How a client compresses what it sends: which methods each protocol has, and their levels."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from headrace_cli.errors import CommandError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

NONE: Final = "none"
_DEFLATE: Final = range(1, 10)

METHODS: Final[Mapping[str, Mapping[str, range]]] = {
    "courier": {"zlib": range(10)},
    "forward": {NONE: range(0), "gzip": _DEFLATE, "zstd": range(1, 20)},
    "logjam": {NONE: range(0), "zlib": range(0), "snappy": range(0), "lz4": range(0)},
    "lumberjack": {NONE: range(0), "zlib": _DEFLATE},
    "segment": {},
}
"""The methods of each protocol, and the levels of each; an empty range: it has none. Of zstd, those that every reader can inflate
(a window of at most 8 MiB).
"""


@dataclass(frozen=True)
class Compression:
    """A method, and its level if one was named."""

    method: str = NONE
    level: int | None = None

    @property
    def none(self) -> bool:
        """Whether nothing is compressed."""
        return self.method == NONE

    def level_or(self, usual: int) -> int:
        """The level, or the usual one."""
        return usual if self.level is None else self.level


def compression_of(text: str, protocol: str) -> Compression | None:
    """Read ``METHOD`` or ``METHOD:LEVEL``; None for an empty text. Raises `CommandError` with status 2."""
    if not text:
        return None
    methods = METHODS.get(protocol, {})
    method, colon, level = text.partition(":")
    if not methods:
        raise CommandError(f"--compression {text}: {protocol} compresses nothing.", status=2)
    if method not in methods:
        raise CommandError(f"--compression {text}: for {protocol} it is one of {', '.join(methods)}.", status=2)
    if not colon:
        return Compression(method)
    levels = methods[method]
    if not levels:
        raise CommandError(f"--compression {text}: {method} has no levels in {protocol}.", status=2)
    if not level.isdecimal() or int(level) not in levels:
        raise CommandError(f"--compression {text}: the level is {levels.start} to {levels.stop - 1}.", status=2)
    return Compression(method, int(level))


class Codec(NamedTuple):
    """How Forward's payload is compressed: what the option `compressed` says, and what does it."""

    name: str
    compress: Callable[[bytes], bytes]


def forward_codec(compression: Compression | None) -> Codec | None:
    """What a client of Forward compresses with; None if it is told to leave it, or told nothing."""
    if compression is None or compression.none:
        return None
    if compression.method == "zstd":
        return Codec("zstd", partial(zstd.compress, level=compression.level_or(3)))
    return Codec("gzip", partial(gzip.compress, compresslevel=compression.level_or(6), mtime=0))
