"""What the first byte of a msgpack object says."""

from __future__ import annotations

from enum import Enum
from typing import Final

Bytes = bytes | bytearray | memoryview


class Kind(Enum):
    """What the first byte of a msgpack object says, as far as Forward cares."""

    ARRAY = "array"
    MAP = "map"
    STR = "str"
    BIN = "bin"
    NIL = "nil"
    OTHER = "other"


def _kinds() -> tuple[Kind, ...]:
    kinds = [Kind.OTHER] * 256
    spans = (
        (0x80, 0x90, Kind.MAP), (0x90, 0xA0, Kind.ARRAY), (0xA0, 0xC0, Kind.STR), (0xC0, 0xC1, Kind.NIL),
        (0xC4, 0xC7, Kind.BIN), (0xD9, 0xDC, Kind.STR), (0xDC, 0xDE, Kind.ARRAY), (0xDE, 0xE0, Kind.MAP),
    )  # fmt: skip
    for first, end, kind in spans:
        kinds[first:end] = [kind] * (end - first)
    return tuple(kinds)


KINDS: Final = _kinds()
"""Kind by first byte."""

HEADER: Final = {0xD9: 1, 0xDA: 2, 0xDB: 4, 0xC4: 1, 0xC5: 2, 0xC6: 4}
"""Length bytes behind the first byte of long strs and bins."""


def content(raw: bytes) -> bytes:
    """What a msgpack str or bin holds; any other object as it is."""
    if KINDS[raw[0]] in (Kind.STR, Kind.BIN):
        return raw[1 + HEADER.get(raw[0], 0) :]
    return raw
