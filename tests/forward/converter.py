"""Converts msgpack to JSON without loss by building the value: short and plain, to compare `Transcoder` with.

What JSON lacks is written so that it can be read back. A bin that is UTF-8 becomes a text, because fluentd's in_tail and
in_syslog send every text as bin; the attributes note where. Any other bin becomes ``{"$bin": base64}``, an ext as ``{"$ext":
[type, base64]}``, an EventTime as RFC 3339 with nine decimals, NaN and the infinities as strings. Keys become text: integers in
decimal, binary as text or ``$bin:`` + base64, anything else as its JSON; repeated or colliding keys give an array, in order.
The event's attributes note each changed key, and the original bytes of a text that is not UTF-8, by JSON pointer into the
value. ``~key`` and a number after a pointer mean the key of that pair (from 0) in the map there; no real pointer has that form.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import orjson
from headrace_common.record.contract import Attribute
from headrace_common.record.event import rfc3339
from headrace_forward.wire import EventTime

EVENT_TIME: Final = 0


class TooDeepError(ValueError):
    """Nested deeper than the limit."""


@dataclass(frozen=True, slots=True)
class Ext:
    """An ext as received. msgpack's own class refuses negative types, which the format reserves but can carry."""

    code: int
    data: bytes


class _Pairs(list[tuple[Any, Any]]):
    """A map as received, including repeated keys."""


class Converter:
    """Converts one value. `keys`, `bins` and `invalid_utf8` are its notes; `depth`: maximum nesting; `texts`: whether a bin
    that is UTF-8 becomes a text.
    """

    def __init__(self, depth: int, *, texts: bool = True) -> None:
        self._depth = depth
        self._texts = texts
        self._in_key = False
        self.keys: dict[str, str] = {}
        self.bins: list[str] = []
        self.invalid_utf8: dict[str, str] = {}

    def convert(self, raw: bytes) -> Any:
        """The msgpack object `raw` as a JSON tree. Raises ValueError if it is not an object, `TooDeepError` if too deep."""
        return self.plain(unpack(raw))

    def plain(self, value: Any, path: str = "", level: int = 0) -> Any:
        """Converts a tree from `unpack` into a JSON tree."""
        kind = type(value)
        if kind is str:
            return self._text(value, path)
        if kind is _Pairs or kind is list:
            if level >= self._depth:
                raise TooDeepError(f"nested deeper than {self._depth}")
            if kind is _Pairs:
                return self._map(value, path, level + 1)
            return [self.plain(item, f"{path}/{index}", level + 1) for index, item in enumerate(value)]
        if kind is bytes:
            return self._bin(value, path)
        if kind is float and not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        if kind is Ext:
            return _ext(value.code, value.data)
        if kind is msgpack.Timestamp:
            return _ext(-1, value.to_bytes())
        return value

    def notes(self) -> dict[str, Any]:
        """The notes for the event's attributes."""
        notes: dict[str, Any] = {}
        if self.keys:
            notes[Attribute.KEYS.value] = self.keys
        if self.bins:
            notes[Attribute.BIN.value] = self.bins
        if self.invalid_utf8:
            notes[Attribute.INVALID_UTF8.value] = self.invalid_utf8
        return notes

    def _bin(self, value: bytes, path: str) -> Any:
        if self._texts and not self._in_key:
            try:
                text = value.decode()
            except UnicodeDecodeError:
                pass
            else:
                self.bins.append(path)
                return text
        return {"$bin": b64encode(value).decode()}

    def _text(self, value: str, path: str) -> str:
        try:
            value.encode()
        except UnicodeEncodeError:
            original = value.encode("utf-8", "surrogateescape")
            self.invalid_utf8[path] = b64encode(original).decode()
            return original.decode("cp1252", "replace")
        return value

    def _map(self, pairs: _Pairs, path: str, level: int) -> dict[str, Any]:
        keys = [self._key(key, f"{path}~key{position}", level) for position, (key, _) in enumerate(pairs)]
        times = Counter(key for key, _ in keys)
        result: dict[str, Any] = {}
        for (key, change), (_, value) in zip(keys, pairs, strict=True):
            place = f"{path}/{escaped(key)}"
            if times[key] > 1:
                self.keys[place] = "repeated"
                values = result.setdefault(key, [])
                place = f"{place}/{len(values)}"
                values.append(self.plain(value, place, level))
            else:
                result[key] = self.plain(value, place, level)
            if change is not None:
                self.keys[place] = change
        return result

    def _key(self, key: Any, path: str, level: int) -> tuple[str, str | None]:
        kind = type(key)
        if kind is str:
            return self._text(key, path), None
        if kind is int:
            return str(key), "integer"
        if kind is bytes:
            try:
                return key.decode(), "binary"
            except UnicodeDecodeError:
                return "$bin:" + b64encode(key).decode(), "binary"
        if kind is not _Pairs and kind is not list:
            return orjson.dumps(self.plain(key, path)).decode(), "other"
        if self._in_key:  # each level of text within text would double the escapes
            raise TooDeepError("a key within a key is an array or a map")
        self._in_key = True
        text = orjson.dumps(self.plain(key, path, level)).decode()
        self._in_key = False
        return text, "other"


def escaped(key: str) -> str:
    """A key as a part of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def unpack(raw: bytes) -> Any:
    """Unpacks the msgpack object `raw` without loss: maps as pairs, texts that are not UTF-8 with escaped surrogates.

    Raises ValueError if `raw` is not exactly one object.
    """
    try:
        return msgpack.unpackb(
            raw,
            raw=False,
            unicode_errors="surrogateescape",
            strict_map_key=False,
            object_pairs_hook=_Pairs,
            ext_hook=Ext,
        )
    except (msgpack.UnpackException, RecursionError) as error:
        raise ValueError(f"not msgpack: {type(error).__name__} {error}".strip()) from error


def _ext(code: int, data: bytes) -> Any:
    if code == EVENT_TIME and len(data) == 8:
        time = EventTime.decode(data)
        return event_time_text(time).decode()
    return {"$ext": [code, b64encode(data).decode()]}


def event_time_text(time: EventTime) -> bytes:
    """RFC 3339 with nine decimals. Nanoseconds of a second or more carry over, as in fluentd."""
    carry, nanoseconds = divmod(time.nanoseconds, 1_000_000_000)
    return rfc3339(time.seconds + carry, nanoseconds)
