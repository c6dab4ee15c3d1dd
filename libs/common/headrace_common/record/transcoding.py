"""Writes msgpack as JSON without loss, in steps of bounded work, without building the value: for what may be long or odd.

Memory follows the bytes that are read and written, never the number of values: objects of Python would take up to a hundred times
the bytes that announce them. What JSON lacks is written as the notes say:

* A bin that is UTF-8 becomes a text (`bins` has its pointer), any other ``{"$bin": base64}``; NaN and the infinities texts.
* Keys become text: integers in decimal, binary as text or ``$bin:`` + base64, anything else as its JSON (`keys`). The values of
  repeated or colliding keys become an array, in order, in the place of the first (`keys` says ``repeated``).
* A text that is not UTF-8 is written as `windows_1252` says (`invalid_utf8` has its bytes).

Pointers are RFC 6901 into the JSON. ``~key`` and a number after a pointer mean the key of that pair (from 0) in the map there.
Keys that repeat are known only at the end of their map, but the pointers into their first value depend on them. So an object in
which a key repeats is written twice: the first time finds the keys, as one bit for each byte that was received. The second time
their values are marked in their places, and moved together at the end of their map.
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
from headrace_common.record.json_text import Bytes, least_bytes, write_base64, write_utf8, write_windows_1252
from headrace_common.record.open_container import AGAIN, FIRST, PLAIN, Members, OpenContainer, gather, mark_of

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


class TooDeepError(ValueError):
    """Nested deeper than the limit."""


class TooLongError(ValueError):
    """As JSON, with its notes, it is longer than the limit."""


class Transcoder:
    """Writes one event's values. `depth`: maximum nesting; `most`: bytes of JSON and notes beyond which it raises `TooLongError`;
    `ext`: appends an ext to JSON, given its type, content and encoding; `texts`: whether a bin that is UTF-8 becomes a text.
    """

    def __init__(
        self, depth: int, most: int, ext: Callable[[bytearray, int, Bytes, Bytes], None], *, texts: bool = True
    ) -> None:
        self._depth = depth
        self._most = most
        self._ext = ext
        self._texts = texts
        self._keys, self._bins, self._invalid = bytearray(), bytearray(), bytearray()
        self._out = bytearray()
        self._repeated = bytearray()  # a bit for each byte of the input: the key that begins there is repeated later
        self._bits = 0  # bytes that it has
        self._again = False

    def write(self, raw: Bytes, path: bytes = b"") -> Generator[None, None, bytearray]:
        """Returns the JSON of the msgpack object `raw`, whose own pointer is `path`; yields between steps. Raises `TooDeepError`,
        `TooLongError`, a ValueError of `ext`, or ValueError if it is not one whole object.
        """
        noted = self._keys, self._bins, self._invalid
        kept = [len(each) for each in noted]
        self._repeated, self._again, self._bits = bytearray(), False, len(raw) // 8 + 1
        try:
            end = yield from self._object(raw, path)
        except (IndexError, struct.error) as error:
            raise ValueError("not one whole msgpack object") from error
        if end != len(raw):
            raise ValueError("not one whole msgpack object")
        if self._repeated:
            for each, size in zip(noted, kept, strict=True):
                del each[size:]
            self._again = True
            yield from self._object(raw, path)
        value, self._out, self._repeated = self._out, bytearray(), bytearray()
        if len(value) > self._most:
            raise TooLongError
        return value

    def notes(self) -> list[bytes]:
        """Returns the notes that are not empty, each as a member of a JSON object, and forgets them."""
        noted = (
            (Attribute.KEYS, b'"%b":{%b}', self._keys),
            (Attribute.BIN, b'"%b":[%b]', self._bins),
            (Attribute.INVALID_UTF8, b'"%b":{%b}', self._invalid),
        )
        self._keys, self._bins, self._invalid = bytearray(), bytearray(), bytearray()
        return [form % (name.value.encode(), text) for name, form, text in noted if text]

    def _object(self, raw: Bytes, path: bytes) -> Generator[None, None, int]:
        """Writes an object. Returns where it ends."""
        out = self._out = bytearray()
        top: OpenContainer | None = None
        at, level, steps, follows = 0, 0, STEPS, False
        while True:
            steps -= 1
            if steps <= 0:
                steps = STEPS
                self._pause()
                yield
            if top is None:
                pass
            elif follows:  # the value of a key that is a container
                follows = False
            elif not top.left:
                done, top, level = top, top.parent, level - 1
                members = done.members
                if members is not None and members.counts:
                    yield from gather(out, done.start, len(members.counts))
                out += b"}" if done.is_map else b"]"
                if top is None:
                    return at
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
                if top.members is not None and top.members.crowded:
                    yield from top.members.grow(out)
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
                return at

    def _pause(self) -> None:
        """Refuses, between two steps, what is already too long: the rest need not be written."""
        written = len(self._out) + len(self._keys) + len(self._bins) + len(self._invalid)
        if written > self._most and not self._again:  # with marks it may be longer than in the end
            raise TooLongError

    def _open(
        self, raw: Bytes, at: int, parent: OpenContainer | None, level: int, path: bytes, *, is_key: bool = False
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
            opened.members = Members(min(left, (len(raw) - at) // 2, self._most // _LEAST_PAIR + 1))
        self._out += b"{" if is_map else b"["
        return opened, at + 1 + width

    def _key(self, raw: Bytes, at: int, top: OpenContainer) -> int:
        """Writes a key that is no container. Returns where its value begins."""
        byte, out = raw[at], self._out
        start, end = _span(raw, at)
        if 0xA0 <= byte < 0xC0 or byte in _STR:
            key = bytearray()
            self._text(key, raw[start:end], top.key_path)
            self._member(top, bytes(key), "")
        elif byte in _BIN:
            content = bytes(raw[start:end])
            try:
                text = content.decode()
            except UnicodeDecodeError:
                text = "$bin:" + b64encode(content).decode()
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
        mark = PLAIN if self._again and top.turn is not None else -1  # the one before is marked
        top.name, top.turn = key, None
        if members is None:
            pass
        elif not self._again:
            number = members.find(key, out)
            if number < 0 and len(out) > self._most:  # more keys than `members` has room for
                raise TooLongError
            if number < 0:
                members.add(len(out) + (top.count > 1), place)
            else:
                top.turn = 1
                self._repeat(members.places[number])
                self._repeat(place)
        elif self._repeated[place >> 3] >> (place & 7) & 1:
            number = members.find(key, out)
            if number < 0:
                mark, top.turn = FIRST, 0
                members.add(len(out) + 2, place)
                members.counts.append(1)
                self._note(self._keys, top.member(), b"repeated")
            else:
                mark, top.turn = AGAIN + number, members.counts[number]
                members.counts[number] += 1
        if mark >= 0:
            out += mark_of(mark)
        elif top.count > 1:
            out += b","
        if not top.turn:
            out += key
            out += b":"
        if change:
            self._note(self._keys, top.current(), change.encode())

    def _repeat(self, place: int) -> None:
        """Notes that the key at `place` of the input is one of several that are equal."""
        if not self._repeated:
            self._repeated = bytearray(self._bits)
        self._repeated[place >> 3] |= 1 << (place & 7)

    def _scalar(self, raw: Bytes, at: int, top: OpenContainer | None, path: bytes) -> int:
        """Writes a value that is no container. Returns where the next one begins. `top`: what it is in."""
        byte, out = raw[at], self._out
        if byte < 0x80 or byte >= 0xE0 or byte in (0xC0, 0xC2, 0xC3):
            out += _ONE[byte]
            return at + 1
        start, end = _span(raw, at)
        if byte < 0xC0 or byte in _STR:
            self._text(out, raw[start:end], lambda: path if top is None else top.current())
        elif byte in _BIN:
            self._bin(raw[start:end], top, path)
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
            self._ext(out, code, raw[start:end], raw[at:end])
        return end

    def _bin(self, content: Bytes, top: OpenContainer | None, path: bytes) -> None:
        out = self._out
        if self._texts and (top is None or not top.in_key):
            try:
                write_utf8(out, content)
            except UnicodeDecodeError:
                pass
            else:
                self._note(self._bins, path if top is None else top.current())
                return
        out += b'{"$bin":"'
        write_base64(out, content)
        out += b'"}'

    def _text(self, out: bytearray, content: Bytes, place: Callable[[], bytes]) -> None:
        try:
            write_utf8(out, content)
        except UnicodeDecodeError:
            if len(out) + len(self._invalid) + least_bytes(content) > self._most:
                raise TooLongError from None
            self._note(self._invalid, place(), content)
            write_windows_1252(out, content)

    def _note(self, notes: bytearray, place: bytes, note: Bytes | None = None) -> None:
        """Notes `note` on the value at `place`: of texts that are not UTF-8 as base64."""
        if len(notes) + len(note or b"") > self._most:
            raise TooLongError
        if notes:
            notes += b","
        notes += b'"%b"' % place
        if note is not None:
            notes += b':"'
            if notes is self._invalid:
                write_base64(notes, note)
            else:
                notes += note
            notes += b'"'
        if len(notes) > self._most:
            raise TooLongError


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
