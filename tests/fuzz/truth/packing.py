"""Values of msgpack: as they are packed, and as their JSON is read."""

from __future__ import annotations

import json
import math
import struct
from collections import Counter, defaultdict
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


def rendered(value: Any, path: str, notes: dict[str, Any]) -> Any:
    """A value of msgpack, as its JSON is read; `notes` says what was changed, by JSON pointer."""
    if isinstance(value, Pairs):
        return _members(value, path, notes)
    if isinstance(value, list):
        return [rendered(each, f"{path}/{number}", notes) for number, each in enumerate(value)]
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return Pairs([("$bin", base64(value))])
        notes.setdefault("bin", []).append(path)
        return text
    if isinstance(value, str):
        raw = value.encode("utf-8", "surrogateescape")
        if (text := text_of(raw)) != value:
            notes.setdefault("invalid_utf8", {})[path] = base64(raw)
        return text
    if isinstance(value, msgpack.Timestamp):
        return Pairs([("$ext", [-1, base64(value.to_bytes())])])
    if isinstance(value, msgpack.ExtType):
        if value.code == 0 and len(value.data) == 8:
            return event_time(value)
        return Pairs([("$ext", [value.code, base64(value.data)])])
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _members(pairs: Pairs, path: str, notes: dict[str, Any]) -> Pairs:
    texts = [_key(each, f"{path}~key{number}", notes) for number, (each, _) in enumerate(pairs)]
    values: dict[str, list[Any]] = defaultdict(list)
    counts = Counter(text for text, _ in texts)
    for (text, change), (_, item) in zip(texts, pairs, strict=True):
        own = f"{path}/{text.replace('~', '~0').replace('/', '~1')}"
        if counts[text] > 1:
            notes.setdefault("keys", {})[own] = "repeated"
            own += f"/{len(values[text])}"
        if change:
            notes.setdefault("keys", {})[own] = change
        values[text].append(rendered(item, own, notes))
    return Pairs((text, each if counts[text] > 1 else each[0]) for text, each in values.items())


def _key(value: Any, place: str, notes: dict[str, Any]) -> tuple[str, str]:
    if isinstance(value, str):
        return rendered(value, place, notes), ""
    if isinstance(value, bytes):
        try:
            return value.decode(), "binary"
        except UnicodeDecodeError:
            return f"$bin:{base64(value)}", "binary"
    text = json.dumps(plain(rendered(value, "", {})), separators=(",", ":"))
    return text, "integer" if type(value) is int else "other"


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
