"""Values of msgpack: as they are packed, and as their JSON is read."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import msgpack

from tests.fuzz.truth import Pairs, at, base64, text_of


class Single(float):
    """A float32 of msgpack."""


def packed(value: Any) -> bytes:
    packer = msgpack.Packer()
    if isinstance(value, Single):
        return msgpack.packb(float(value), use_single_float=True)
    if isinstance(value, Pairs):
        return packer.pack_map_header(len(value)) + b"".join(packed(each) for pair in value for each in pair)
    if isinstance(value, list):
        return packer.pack_array_header(len(value)) + b"".join(map(packed, value))
    return msgpack.packb(value, unicode_errors="surrogateescape")


def rendered(value: Any, notes: set[str]) -> Any:
    """A value of msgpack, as its JSON is read; `notes` says why JSON cannot hold it exactly."""
    if isinstance(value, Pairs):
        texts = [_key(each, notes) for each, _ in value]
        if len(set(texts)) < len(texts):
            notes.add("repeated_keys")
        return Pairs((text, rendered(item, notes)) for text, (_, item) in zip(texts, value, strict=True))
    if isinstance(value, list):
        return [rendered(each, notes) for each in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return Pairs([("$bin", base64(value))])
    if isinstance(value, str):
        raw = value.encode("utf-8", "surrogateescape")
        if (text := text_of(raw)) != value:
            notes.add("invalid_utf8")
        return text
    if isinstance(value, msgpack.Timestamp):
        return Pairs([("$ext", [-1, base64(value.to_bytes())])])
    if isinstance(value, msgpack.ExtType):
        if value.code == 0 and len(value.data) == 8:
            return event_time(value)
        return Pairs([("$ext", [value.code, base64(value.data)])])
    if isinstance(value, float) and not math.isfinite(value):
        notes.add("numbers")
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _key(value: Any, notes: set[str]) -> str:
    if isinstance(value, str):
        return str(rendered(value, notes))
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            notes.add("other_keys")
            return f"$bin:{base64(value)}"
    notes.add("other_keys")
    return json.dumps(plain(rendered(value, notes)), separators=(",", ":"))


def event_time(given: msgpack.ExtType) -> str:
    seconds, nanoseconds = struct.unpack(">II", given.data)
    return at(seconds + nanoseconds // 10**9) + f".{nanoseconds % 10**9:09d}Z"


def plain(value: Any) -> Any:
    """What was rendered, with maps as dicts: for an attribute."""
    if isinstance(value, Pairs):
        return {key: plain(item) for key, item in value}
    return [*map(plain, value)] if isinstance(value, list) else value


def as_pairs(value: Any) -> Any:
    if isinstance(value, dict):
        return Pairs((key, as_pairs(item)) for key, item in value.items())
    return [*map(as_pairs, value)] if isinstance(value, list) else value
