"""Values of msgpack, as they are packed and as their JSON is."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable
from typing import Any, Final

import msgpack

from tests.fuzz.chance import Chance
from tests.fuzz.truth import at, base64, text_of
from tests.fuzz.truth.values import NO_UTF8, value, word

Packed = tuple[bytes, str]
"""A value, and its JSON."""

NANOSECONDS: Final = (0, 5, 10**6, 123_456_789, 999_999_999, 10**9, 10**9 + 1)


def packed(value: Any) -> bytes:
    return msgpack.packb(value, unicode_errors="surrogateescape")


def event_time(seconds: int, nanoseconds: int) -> tuple[msgpack.ExtType, str]:
    """An EventTime, and what is stored of it."""
    stored = at(seconds + nanoseconds // 10**9) + f".{nanoseconds % 10**9:09d}Z"
    return msgpack.ExtType(0, struct.pack(">II", seconds, nanoseconds)), stored


def _ext(code: int, data: bytes) -> str:
    return f'{{"$ext":[{code},"{base64(data)}"]}}'


ODD: Final[tuple[tuple[bytes, str, str], ...]] = (
    (packed(math.nan), '"NaN"', "numbers"),
    (packed(math.inf), '"Infinity"', "numbers"),
    (packed(-math.inf), '"-Infinity"', "numbers"),
    (packed(2**64 - 1), "18446744073709551615", ""),
    (msgpack.packb(0.5, use_single_float=True), "0.5", ""),
    (msgpack.packb(0.1, use_single_float=True), "0.10000000149011612", ""),
    *((packed(msgpack.ExtType(code, data)), _ext(code, data), "") for code, data in ((0, b"123456789"), (5, b"\xff"))),
    (packed(time := msgpack.Timestamp(9, 5)), _ext(-1, time.to_bytes()), ""),
    *((packed(time), f'"{text}"', "") for time, text in (event_time(65_536, each) for each in (1, 2**32 - 1))),
    *((packed(bad), f'{{"$bin":"{base64(bad)}"}}', "") for bad in NO_UTF8),
    *((packed(bad.decode("utf-8", "surrogateescape")), json.dumps(text_of(bad)), "invalid_utf8") for bad in NO_UTF8),
)
"""Values that JSON does not have: each with its JSON, and the notes on it."""

KEYS: Final[tuple[tuple[bytes, str, str], ...]] = (
    *((packed(key), key if isinstance(key, str) else key.decode(), "") for key in ("1", b"1", "k1", b"k1")),
    *((packed(key), json.dumps(key), "other_keys") for key in (1, -1, 1.5, None, True)),
    (packed(math.nan), '"NaN"', "numbers other_keys"),
    (packed(b"\xff"), "$bin:/w==", "other_keys"),
    (packed(msgpack.ExtType(5, b"a")), _ext(5, b"a"), "other_keys"),
    *(
        (packed(bad.decode("utf-8", "surrogateescape")), text_of(bad), "invalid_utf8")
        for bad in (b"\xff", b"\x81", b"\x8d")
    ),
)


def of_json(value: Any) -> Packed:
    return packed(value), json.dumps(value)


def odd(s: Chance, notes: set[str], level: int = 0) -> Packed:
    """Any value; `notes` says why JSON cannot hold it exactly."""
    kind = s.randrange(6 if level > 2 else 10)
    if kind < 2:
        return of_json(value(s, 3))
    if kind < 3:
        return packed((text := word(s)).encode()), json.dumps(text)
    if kind < 6:
        raw, text, note = s.choice(ODD)
        notes.update(note.split())
        return raw, text
    if kind < 8:
        items = [odd(s, notes, level + 1) for _ in range(s.choice((0, 1, 2, 5)))]
        return array(raw for raw, _ in items), f"[{','.join(text for _, text in items)}]"
    return odd_map(s, notes, level + 1)


def odd_map(s: Chance, notes: set[str], level: int = 0) -> Packed:
    """A map, whose keys may be anything and may repeat."""
    usual, data, members = s.perhaps(0.5), b"", []
    for _ in range(s.choice((0, 1, 2, 5, 9))):
        text = f"k{s.randrange(9)}" if usual else word(s)
        raw, key, note = (packed(text), text, "") if usual or s.perhaps(0.2) else s.choice(KEYS)
        notes.update(note.split())
        item, shown = odd(s, notes, level)
        data += raw + item
        members.append((key, f"{json.dumps(key)}:{shown}"))
    if len(dict(members)) < len(members):
        notes.add("repeated_keys")
    header: bytes = msgpack.Packer().pack_map_header(len(members))
    return header + data, f"{{{','.join(text for _, text in members)}}}"


def array(items: Iterable[bytes]) -> bytes:
    """An array of values that are packed."""
    items = list(items)
    header: bytes = msgpack.Packer().pack_array_header(len(items))
    return header + b"".join(items)
