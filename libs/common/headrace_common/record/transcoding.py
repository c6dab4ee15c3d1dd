"""Writes msgpack as JSON without loss, in steps of bounded work, without building the value: for what may be long or odd.

Memory follows the text that is written, never the number of values: objects of Python would take up to a hundred times the bytes
that announce them. What JSON lacks is written as the notes say:

* A bin that is UTF-8 becomes a text (`bins` has its pointer), any other ``{"$bin": base64}``; NaN and the infinities texts.
* Keys become text: integers in decimal, binary as text or ``$bin:`` + base64, anything else as its JSON (`keys`). The values of
  repeated or colliding keys become an array, in order, in the place of the first (`keys` says ``repeated``).
* A text that is not UTF-8 is written as `windows_1252` says (`invalid_utf8` has its bytes).

Pointers are RFC 6901 into the JSON. ``~key`` and a number after a pointer mean the key of that pair (from 0) in the map there.
Keys that repeat are known only at the end of their map, but the pointers into their first value depend on them. So an object in
which a key repeats is written twice: the first time finds the keys, as one bit for each byte that was received.
"""

from __future__ import annotations

import math
import re
import struct
from base64 import b64encode
from collections.abc import Callable, Generator
from typing import Final

import orjson

from headrace_common.record.contract import Attribute
from headrace_common.record.json_text import utf8_json, windows_1252_json
from headrace_common.record.open_container import Members, OpenContainer

STEPS: Final = 512
"""Values between two pauses: well below a millisecond of work."""

RUN: Final = 2048
"""Maximum values of one byte each that are written at once."""

_LEAST_PAIR: Final = 6
"""Least bytes of JSON that a pair with a key of its own takes."""

_BIN: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_STR: Final = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_EXT: Final = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXEXT: Final = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_FLOATS: Final = {0xCA: struct.Struct(">f"), 0xCB: struct.Struct(">d")}
_INTEGERS: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_SIGNED: Final = 0xD0
_ONE: Final = [b"%d" % (byte if byte < 128 else byte - 256) for byte in range(256)]
_ONE[0xC0], _ONE[0xC2], _ONE[0xC3] = b"null", b"false", b"true"
_ONES: Final = re.compile(rb"[\x00-\x7f\xc0\xc2\xc3\xe0-\xff]+")
_CONTAINER: Final = [0x80 <= byte < 0xA0 or 0xDC <= byte < 0xE0 for byte in range(256)]
_TEXT: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')

Steps = Generator[None, None, None]


class TooDeepError(ValueError):
    """Nested deeper than the limit."""


class TooLongError(ValueError):
    """As JSON, with its notes, it is longer than the limit."""


class Transcoder:
    """Writes one event's values. `depth`: maximum nesting; `most`: bytes of JSON and notes beyond which it raises `TooLongError`;
    `ext`: writes an ext, given its type, content and encoding; `texts`: whether a bin that is UTF-8 becomes a text.
    """

    def __init__(self, depth: int, most: int, ext: Callable[[int, bytes, bytes], bytes], *, texts: bool = True) -> None:
        self._depth = depth
        self._most = most
        self._ext = ext
        self._texts = texts
        self._keys, self._bins, self._invalid = bytearray(), bytearray(), bytearray()
        self._out = bytearray()
        self._repeated = bytearray()  # a bit for each byte of the input: the key that begins there is repeated later
        self._again = False

    def write(self, raw: bytes, start: int = 0, path: bytes = b"") -> Generator[None, None, bytes]:
        """Returns the JSON of the msgpack object from `start` to the end of `raw`, whose own pointer is `path`; yields between
        steps. Raises `TooDeepError`, `TooLongError`, a ValueError of `ext`, or ValueError if it is not one whole object.
        """
        noted = self._keys, self._bins, self._invalid
        kept = [len(each) for each in noted]
        self._repeated, self._again = bytearray(len(raw) // 8 + 1), False
        try:
            end, found = yield from self._object(raw, start, path)
        except (IndexError, struct.error) as error:
            raise ValueError("not one whole msgpack object") from error
        if end != len(raw):
            raise ValueError("not one whole msgpack object")
        if found:
            for each, size in zip(noted, kept, strict=True):
                del each[size:]
            self._again = True
            yield from self._object(raw, start, path)
        value = bytes(self._out)
        self._out, self._repeated = bytearray(), bytearray()
        if len(value) > self._most:
            raise TooLongError
        return value

    def notes(self) -> dict[str, orjson.Fragment]:
        """The notes that are not empty, by the names of their attributes."""
        noted = (
            (Attribute.KEYS, b"{%b}", self._keys),
            (Attribute.BIN, b"[%b]", self._bins),
            (Attribute.INVALID_UTF8, b"{%b}", self._invalid),
        )
        return {name.value: orjson.Fragment(form % bytes(text)) for name, form, text in noted if text}

    def _object(self, raw: bytes, at: int, path: bytes) -> Generator[None, None, tuple[int, bool]]:
        """Writes an object. Returns where it ends, and whether a key is repeated that was not known to be."""
        out = self._out = bytearray()
        top: OpenContainer | None = None
        level, steps, follows, found = 0, STEPS, False, False
        while True:
            steps -= 1
            if steps <= 0:
                steps = STEPS
                if len(out) > self._most:
                    raise TooLongError
                yield
            if top is None:
                pass
            elif follows:  # the value of a key that is a container
                follows = False
            elif not top.left:
                done, top, level = top, top.parent, level - 1
                members = done.members
                if members is not None and members.repeats:
                    found = True
                    if self._again:
                        yield from self._gather(done.start, members)
                out += b"}" if done.is_map else b"]"
                if top is None:
                    return at, found
                if done.is_key:
                    key = out[done.start :].decode()
                    del out[done.start :]
                    self._member(top, orjson.dumps(key), "other")
                    follows = True
                continue
            elif top.is_map:
                top.left -= 1
                top.count += 1
                top.place = at
                if _CONTAINER[raw[at]]:
                    if top.in_key:  # each level of text within text would double the escapes
                        raise TooDeepError("a key within a key is an array or a map")
                    top, at = self._open(raw, at, top, level, path, is_key=True)
                    level += 1
                    continue
                at = self._key(raw, at, top)
            else:
                top.left -= 1
                if top.count:
                    out += b","
                top.count += 1
            byte = raw[at]
            if _CONTAINER[byte]:
                top, at = self._open(raw, at, top, level, path)
                level += 1
                continue
            if (
                top is not None
                and not top.is_map
                and top.left
                and (run := _ONES.match(raw, at, at + min(RUN, top.left + 1)))
            ):
                size = run.end() - at
                out += b",".join([_ONE[each] for each in raw[at : at + size]])
                top.left -= size - 1
                top.count += size - 1
                at += size
                steps -= size >> 4
                continue
            at = self._scalar(raw, at, top, path)
            if top is None:
                return at, False

    def _open(
        self, raw: bytes, at: int, parent: OpenContainer | None, level: int, path: bytes, *, is_key: bool = False
    ) -> tuple[OpenContainer, int]:
        """Begins the container at `at`. Returns it, and where its first element begins."""
        if level >= self._depth:
            raise TooDeepError(f"nested deeper than {self._depth}")
        byte = raw[at]
        is_map = byte < 0x90 or byte >= 0xDE
        width = 0 if byte < 0xA0 else 2 if byte in (0xDC, 0xDE) else 4
        left = byte & 0x0F if not width else int.from_bytes(raw[at + 1 : at + 1 + width], "big")
        opened = OpenContainer(parent, left, len(self._out), path, is_map=is_map, is_key=is_key)
        if is_map and left > 1:
            opened.members = Members(min(left, self._most // _LEAST_PAIR + 1))
        self._out += b"{" if is_map else b"["
        return opened, at + 1 + width

    def _key(self, raw: bytes, at: int, top: OpenContainer) -> int:
        """Writes a key that is no container. Returns where its value begins."""
        byte, out = raw[at], self._out
        start, end = _span(raw, at)
        if 0xA0 <= byte < 0xC0 or byte in _STR:
            self._member(top, bytes(self._text(raw[start:end], top.key_path)), "")
        elif byte in _BIN:
            try:
                text = raw[start:end].decode()
            except UnicodeDecodeError:
                text = "$bin:" + b64encode(raw[start:end]).decode()
            self._member(top, orjson.dumps(text), "binary")
        else:
            before = len(out)
            self._scalar(raw, at, None, b"")
            written = bytes(out[before:])
            del out[before:]
            is_integer = byte < 0x80 or byte >= 0xE0 or byte in _INTEGERS
            self._member(top, orjson.dumps(written.decode()), "integer" if is_integer else "other")
        return end

    def _member(self, top: OpenContainer, key: bytes, change: str) -> None:
        """Begins a member. `change`: the note on its key."""
        out, members, place = self._out, top.members, top.place
        if top.count > 1:
            out += b","
        top.name, top.turn = key, None
        if members is not None:
            if len(out) > self._most:  # more keys than `members` has room for
                raise TooLongError
            turn = members.add(key, place, out)
            if turn:
                top.turn = turn
                first = members.first()
                self._repeated[first >> 3] |= 1 << (first & 7)
            elif self._again and self._repeated[place >> 3] >> (place & 7) & 1:
                top.turn = 0
                self._note(self._keys, top.member(), b"repeated")
        if not top.turn:
            out += key
            out += b":"
        if change:
            self._note(self._keys, top.current(), change.encode())

    def _gather(self, start: int, members: Members) -> Steps:
        """Moves the values of each repeated key together. The map begins at `start` of the text."""
        out, starts, after = self._out, members.starts, members.after
        gathered = bytearray()
        end = len(out)
        for index in range(len(starts)):
            if not index % STEPS:
                yield
            if members.turns[index]:
                continue
            gathered += b"," if gathered else b""
            if after[index] == index:
                gathered += out[starts[index] : starts[index + 1] - 1 if index + 1 < len(starts) else end]
                continue
            text = _TEXT.match(out, starts[index])
            assert text is not None
            value = text.end() + 1
            gathered += out[starts[index] : value]
            separator, each, turn = b"[", index, 0
            while turn == 0 or each != index:
                gathered += separator
                gathered += out[
                    value if not turn else starts[each] : starts[each + 1] - 1 if each + 1 < len(starts) else end
                ]
                separator, each, turn = b",", after[each], turn + 1
                if not turn % STEPS:
                    yield
            gathered += b"]"
        out[start + 1 :] = gathered

    def _scalar(self, raw: bytes, at: int, top: OpenContainer | None, path: bytes) -> int:
        """Writes a value that is no container. Returns where the next one begins. `top`: what it is in."""
        byte, out = raw[at], self._out
        if byte < 0x80 or byte >= 0xE0 or byte in (0xC0, 0xC2, 0xC3):
            out += _ONE[byte]
            return at + 1
        start, end = _span(raw, at)
        if byte < 0xC0 or byte in _STR:
            out += self._text(raw[start:end], lambda: path if top is None else top.current())
        elif byte in _BIN:
            out += self._bin(raw[start:end], top, path)
        elif byte in _INTEGERS:
            out += b"%d" % int.from_bytes(raw[start:end], "big", signed=byte >= _SIGNED)
        elif byte in _FLOATS:
            (number,) = _FLOATS[byte].unpack_from(raw, start)
            if math.isfinite(number):
                out += orjson.dumps(number)
            else:
                out += b'"NaN"' if math.isnan(number) else b'"Infinity"' if number > 0 else b'"-Infinity"'
        else:
            (code,) = struct.unpack_from(">b", raw, start - 1)
            out += self._ext(code, raw[start:end], raw[at:end])
        return end

    def _bin(self, content: bytes, top: OpenContainer | None, path: bytes) -> bytes | bytearray:
        if self._texts and (top is None or not top.in_key):
            try:
                text = utf8_json(content)
            except UnicodeDecodeError:
                pass
            else:
                self._note(self._bins, path if top is None else top.current())
                return text
        return b'{"$bin":"%b"}' % b64encode(content)

    def _text(self, content: bytes, place: Callable[[], bytes]) -> bytes | bytearray:
        try:
            return utf8_json(content)
        except UnicodeDecodeError:
            self._note(self._invalid, place(), b64encode(content))
            return windows_1252_json(content)

    def _note(self, notes: bytearray, place: bytes, note: bytes | None = None) -> None:
        if len(notes) + len(note or b"") > self._most:
            raise TooLongError
        if notes:
            notes += b","
        notes += b'"%b"' % place if note is None else b'"%b":"%b"' % (place, note)
        if len(notes) > self._most:
            raise TooLongError


def _span(raw: bytes, at: int) -> tuple[int, int]:
    """Where the content of a value that is no container begins and ends."""
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
