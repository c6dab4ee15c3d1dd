"""The kind of a msgpack object, from its first byte."""

from __future__ import annotations

from typing import Any, Final

import msgpack
from headrace_common.record.json_text import Bytes

ARRAY, MAP, STR, BIN, NIL, OTHER = "array", "map", "str", "bin", "nil", "other"


def _kinds() -> tuple[str, ...]:
    kinds = [OTHER] * 256
    spans = (
        (0x80, 0x90, MAP),
        (0x90, 0xA0, ARRAY),
        (0xA0, 0xC0, STR),
        (0xC0, 0xC1, NIL),
        (0xC4, 0xC7, BIN),
        (0xD9, 0xDC, STR),
        (0xDC, 0xDE, ARRAY),
        (0xDE, 0xE0, MAP),
    )
    for first, end, kind in spans:
        kinds[first:end] = [kind] * (end - first)
    return tuple(kinds)


KINDS: Final = _kinds()
"""The kind of an object that Forward distinguishes, by its first byte."""

TEXTS: Final = (STR, BIN)
TIMES: Final = (OTHER, NIL, MAP)
"""The kinds of a second element that is a time, if only an invalid one."""

HEADER: Final = {0xD9: 1, 0xDA: 2, 0xDB: 4, 0xC4: 1, 0xC5: 2, 0xC6: 4}
"""Number of length bytes after the first byte of long strs and bins."""


ARRAY_HEADER: Final = {0xDC: 2, 0xDD: 4}
"""The same for long arrays."""


def array_size(raw: Bytes) -> int | None:
    """Returns how many elements a msgpack array has; None for any other object."""
    if KINDS[raw[0]] != ARRAY:
        return None
    return raw[0] & 0x0F if raw[0] < 0xA0 else int.from_bytes(raw[1 : 1 + ARRAY_HEADER[raw[0]]], "big")


def content(raw: bytes) -> bytes:
    """Returns the content of a msgpack str or bin; any other object unchanged."""
    if KINDS[raw[0]] in TEXTS:
        return raw[1 + HEADER.get(raw[0], 0) :]
    return raw


def new_unpacker() -> Any:
    """Makes an unpacker without size limits, whose buffer starts small."""
    return msgpack.Unpacker(max_buffer_size=0, read_size=4 << 10)
