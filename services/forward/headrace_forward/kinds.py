"""The kind of a msgpack object, from its first byte; and a small message cut into its elements."""

from __future__ import annotations

from array import array
from enum import Enum
from itertools import accumulate
from typing import Final

import msgspec

Bytes = bytes | bytearray | memoryview


class MsgpackKind(Enum):
    """The kinds of msgpack objects that Forward distinguishes by their first byte."""

    ARRAY = "array"
    MAP = "map"
    STR = "str"
    BIN = "bin"
    NIL = "nil"
    OTHER = "other"


def _kinds() -> tuple[MsgpackKind, ...]:
    kinds = [MsgpackKind.OTHER] * 256
    spans = (
        (0x80, 0x90, MsgpackKind.MAP),
        (0x90, 0xA0, MsgpackKind.ARRAY),
        (0xA0, 0xC0, MsgpackKind.STR),
        (0xC0, 0xC1, MsgpackKind.NIL),
        (0xC4, 0xC7, MsgpackKind.BIN),
        (0xD9, 0xDC, MsgpackKind.STR),
        (0xDC, 0xDE, MsgpackKind.ARRAY),
        (0xDE, 0xE0, MsgpackKind.MAP),
    )
    for first, end, kind in spans:
        kinds[first:end] = [kind] * (end - first)
    return tuple(kinds)


KINDS: Final = _kinds()
"""Kind by first byte."""

ARRAY, MAP, NIL = MsgpackKind.ARRAY, MsgpackKind.MAP, MsgpackKind.NIL
TEXTS: Final = (MsgpackKind.STR, MsgpackKind.BIN)
TIMES: Final = (MsgpackKind.OTHER, MsgpackKind.NIL, MsgpackKind.MAP)
"""The kinds of a second element that is a time, if only an invalid one. Names of their own, as Python looks a member of an enum
up by a call, and these are asked for with each message.
"""

HEADER: Final = {0xD9: 1, 0xDA: 2, 0xDB: 4, 0xC4: 1, 0xC5: 2, 0xC6: 4}
"""Number of length bytes after the first byte of long strs and bins."""


def content(raw: bytes) -> bytes:
    """Returns the content of a msgpack str or bin; any other object unchanged."""
    if KINDS[raw[0]] in TEXTS:
        return raw[1 + HEADER.get(raw[0], 0) :]
    return raw


_elements = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def cut(data: bytes, most: int) -> tuple[list[int], array[int] | None, int, int] | None:
    """Returns the ends of a message's elements, and of its entries if these are an array: `Message.ends`, `entries`, `base`,
    `count`.

    None: `data` is not one message with a header of one byte and nothing else, or it has more than `most` entries. Takes time
    and memory as `data` is long: check that first.
    """
    try:
        elements = _elements(data)
        if not elements or data[0] > 0x9F:
            return None
        ends = list(accumulate(map(len, elements), initial=1))[1:]
        if len(elements) == 1 or KINDS[data[ends[0]]] is not ARRAY:
            return ends, None, 0, 0
        entries = _elements(elements[1])
    except (msgspec.MsgspecError, RecursionError):
        return None
    if len(entries) > most:
        return None
    first = ends[1] - sum(map(len, entries))
    return ends, array("Q", accumulate(map(len, entries), initial=first)), 0, len(entries)
