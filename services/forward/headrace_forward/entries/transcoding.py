"""Writes msgpack as JSON, in steps of bounded work, without building the value: for what may be long or odd.

Memory follows the bytes that are read and written, never the number of values: objects of Python would take up to a hundred times
the bytes that announce them. What JSON lacks is written as it can be read, and noted (`Note`): numbers that are not finite and
keys that are not texts become texts, repeated keys are repeated, and a text that is not UTF-8 is written as `readable` says.
A bin that is UTF-8 becomes a text, any other ``{"$bin": base64}``.
"""

from __future__ import annotations

import math
import struct
from base64 import b64encode
from collections.abc import Callable, Generator
from typing import Final

import orjson
from headrace_common.record.contract import Note
from headrace_common.record.json_text import Bytes, write_base64, write_text

STEPS: Final = 512
"""Values between two pauses: well below a millisecond of work."""

MOST_KEYS: Final = 1024
"""Keys of open maps that are remembered, to find repeated ones. The native core leaves a map with more to Python."""

_BIN: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_STR: Final = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_EXT: Final = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXEXT: Final = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_FLOATS: Final = {0xCA: struct.Struct(">f"), 0xCB: struct.Struct(">d")}
_INTEGERS: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_SIGNED: Final = 0xD0
_ONE: Final = [b"%d" % (byte if byte < 128 else byte - 256) for byte in range(256)]
_ONE[0xC0], _ONE[0xC2], _ONE[0xC3] = b"null", b"false", b"true"
_CONTAINER: Final = [0x80 <= byte < 0xA0 or 0xDC <= byte < 0xE0 for byte in range(256)]
_OPENING: Final = b"[{"


class TooDeepError(ValueError):
    """Nested deeper than the limit."""


class TooLongError(ValueError):
    """As JSON it is longer than the limit."""


class _Open:
    """A container that is being written. `left`: elements or pairs to come; `keys`: of a map with more than one pair."""

    __slots__ = ("is_map", "keys", "left")

    def __init__(self, left: int, *, is_map: bool) -> None:
        self.left = left
        self.is_map = is_map
        self.keys: set[int] | None = set() if is_map and left > 1 else None


class Transcoder:
    """Writes one event's values. `depth`: maximum nesting; `most`: bytes of JSON beyond which it raises `TooLongError`; `ext`:
    appends an ext to JSON, given its type, content and encoding. `notes`: of all that was written.
    """

    def __init__(self, depth: int, most: int, ext: Callable[[bytearray, int, Bytes, Bytes], None]) -> None:
        self._depth = depth
        self._most = most
        self._ext = ext
        self._out = bytearray()
        self._remembered = 0  # keys of open maps
        self.notes: set[Note] = set()

    def write(self, raw: Bytes) -> Generator[int, None, bytearray]:
        """Returns the JSON of the msgpack object `raw`; yields between steps. Raises `TooDeepError`, `TooLongError`, a ValueError
        of `ext`, or ValueError if it is not one whole object, or a key of it is an array or a map.
        """
        self._out, self._remembered = bytearray(), 0
        try:
            end = yield from self._object(raw)
        except (IndexError, struct.error) as error:
            raise ValueError("not one whole msgpack object") from error
        if end != len(raw):
            raise ValueError("not one whole msgpack object")
        if len(self._out) > self._most:
            raise TooLongError
        return self._out

    def _object(self, raw: Bytes) -> Generator[int, None, int]:
        """Writes an object. Returns where it ends."""
        out, at, steps = self._out, 0, STEPS
        opened: list[_Open] = []
        while True:
            steps -= 1
            if steps <= 0:
                if len(out) > self._most:
                    raise TooLongError
                steps = STEPS
                yield 0
            top = opened[-1] if opened else None
            if top is not None:
                if not top.left:
                    out += b"}" if top.is_map else b"]"
                    self._remembered -= len(opened.pop().keys or ())
                    if not opened:
                        return at
                    continue
                if out[-1] not in _OPENING:
                    out += b","
                top.left -= 1
                if top.is_map:
                    at = self._key(raw, at, top.keys)
            if not _CONTAINER[raw[at]]:
                at = self._scalar(raw, at)
                if top is None:
                    return at
                continue
            if len(opened) >= self._depth:
                raise TooDeepError(f"nested deeper than {self._depth}")
            byte = raw[at]
            width = 0 if byte < 0xA0 else 2 if byte in (0xDC, 0xDE) else 4
            left = byte & 0x0F if not width else int.from_bytes(raw[at + 1 : at + 1 + width], "big")
            opened.append(_Open(left, is_map=byte < 0x90 or byte >= 0xDE))
            out += b"{" if opened[-1].is_map else b"["
            at += 1 + width

    def _key(self, raw: Bytes, at: int, known: set[int] | None) -> int:
        """Writes a key. Returns where its value begins. `known`: the keys of its map, if it has more than one."""
        byte, out = raw[at], self._out
        if _CONTAINER[byte]:
            raise ValueError("a key is an array or a map")
        start, end = _span(raw, at)
        before = len(out)
        is_text = 0xA0 <= byte < 0xC0 or byte in _STR
        whole = (is_text or byte in _BIN) and write_text(out, raw[start:end])
        if is_text and not whole:
            self.notes.add(Note.INVALID_UTF8)
        elif not whole:
            del out[before:]
            if byte in _BIN:
                key = "$bin:" + b64encode(raw[start:end]).decode()
            else:
                self._scalar(raw, at)
                key = out[before:].decode()
                del out[before:]
            out += orjson.dumps(key)
            self.notes.add(Note.OTHER_KEYS)
        if known is not None:
            name = hash(bytes(memoryview(out)[before:]))
            if name in known or self._remembered == MOST_KEYS:
                self.notes.add(Note.REPEATED_KEYS)  # or it may be
            else:
                known.add(name)
                self._remembered += 1
        out += b":"
        return end

    def _scalar(self, raw: Bytes, at: int) -> int:
        """Writes a value that is no container. Returns where the next one begins."""
        byte, out = raw[at], self._out
        if byte < 0x80 or byte >= 0xE0 or byte in (0xC0, 0xC2, 0xC3):
            out += _ONE[byte]
            return at + 1
        start, end = _span(raw, at)
        if byte < 0xC0 or byte in _STR:
            if not write_text(out, raw[start:end]):
                self.notes.add(Note.INVALID_UTF8)
        elif byte in _BIN:
            before = len(out)
            if not write_text(out, raw[start:end]):
                out[before:] = b'{"$bin":"'
                write_base64(out, raw[start:end])
                out += b'"}'
        elif byte in _INTEGERS:
            out += b"%d" % int.from_bytes(raw[start:end], "big", signed=byte >= _SIGNED)
        elif byte in _FLOATS:
            (number,) = _FLOATS[byte].unpack_from(raw, start)
            if math.isfinite(number):
                out += orjson.dumps(number)
            else:
                out += b'"NaN"' if math.isnan(number) else b'"Infinity"' if number > 0 else b'"-Infinity"'
                self.notes.add(Note.NUMBERS)
        else:
            (code,) = struct.unpack_from(">b", raw, start - 1)
            self._ext(out, code, raw[start:end], raw[at:end])
        return end


def _span(raw: Bytes, at: int) -> tuple[int, int]:
    """Returns where the content of a value that is no container begins and ends."""
    byte = raw[at]
    if 0xA0 <= byte < 0xC0:
        return at + 1, at + 1 + (byte & 0x1F)
    if byte in _FIXEXT:
        return at + 2, at + 2 + _FIXEXT[byte]
    width = _BIN.get(byte) or _STR.get(byte) or _EXT.get(byte)
    if width is not None:
        start = at + 1 + width + (byte in _EXT)
        return start, start + int.from_bytes(raw[at + 1 : at + 1 + width], "big")
    number = _INTEGERS.get(byte) or (4 if byte == 0xCA else 8 if byte == 0xCB else 0)
    return at + 1, at + 1 + number
