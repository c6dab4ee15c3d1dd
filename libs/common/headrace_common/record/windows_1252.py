"""Text that is not UTF-8, in every protocol: the whole text is read as Windows-1252, and the attribute `invalid_utf8` keeps
its bytes.

So does the importer of skaes/logjam-tools (`convert_to_win1252`): text by text, so what is UTF-8 elsewhere in the event stays
what it is, and the five bytes that Windows-1252 does not define (81, 8D, 8F, 90, 9D) become U+FFFD.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Final, NamedTuple

import orjson

from headrace_common.record.contract import Attribute, Reason
from headrace_common.record.json_text import Bytes, append_windows_1252, is_utf8, least_bytes, write_base64
from headrace_common.record.open_container import Members

Refusal = tuple[Reason, str]
"""Why bytes cannot be mended, for quarantine."""

STEPS: Final = 512
"""Tokens of JSON between two pauses: about half a millisecond."""

TOKEN: Final = re.compile(
    rb'[ \t\r\n:,]*+(?:"((?:[^"\\]++|\\.)*+)"|([\[{])|([\]}])|([^\[\]{}", \t\r\n:,]++))', re.DOTALL
)
"""A token of JSON, with what separates it from the one before: a text without its quotes, an opening bracket, a closing one, or
another value.
"""


class MendedJson(NamedTuple):
    """JSON in UTF-8. `note`: the value of the attribute `invalid_utf8`, as JSON; empty: all texts were UTF-8."""

    value: Bytes
    note: bytes

    def attributes(self, others: bytes | None) -> bytes | None:
        """Returns `others`, an object as JSON, with the note in it."""
        if not self.note:
            return others
        before = b"{" if not others or others == b"{}" else others[:-1] + b","
        return b'%b"%b":%b}' % (before, Attribute.INVALID_UTF8.value.encode(), self.note)


class _Open:
    """A container that has not ended. `key`: of the member that has begun, None before its key. `count`: members before it."""

    __slots__ = ("count", "is_map", "key")

    def __init__(self, *, is_map: bool) -> None:
        self.is_map = is_map
        self.key: bytes | None = None
        self.count = 0


def pointer(key: str) -> str:
    """Returns a key as a part of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def mended(raw: Bytes, depth: int, most: int) -> Generator[None, None, MendedJson | Refusal]:
    """Returns JSON whose texts are UTF-8; yields between steps, of which each is bounded but for the length of one text.

    The bytes that are kept are those between a text's quotes. Bytes that are no JSON either way may give any JSON or none:
    the caller checks the result. `depth`: most open containers; `most`: bytes of the JSON and its note together.
    """
    value, note = bytearray(), bytearray(b"{")
    places = Members(len(raw) // 3)  # of the texts that are not UTF-8: as they are in `note`
    opened: list[_Open] = []
    at = copied = size = steps = 0
    while found := TOKEN.match(raw, at):
        at = found.end()
        steps += 1
        if steps % STEPS == 0:
            yield
        top = opened[-1] if opened else None
        start, end = found.span(1)
        opens, closes = found[2], found[3]
        if closes is not None:
            if top is not None:
                opened.pop()
                top = opened[-1] if opened else None
        elif opens is not None:
            opened.append(_Open(is_map=opens == b"{"))
            if len(opened) > depth:
                return Reason.TOO_DEEP, f"nested deeper than {depth}"
            continue
        elif start >= 0:
            is_key = top is not None and top.is_map and top.key is None
            text: Bytes = memoryview(raw)[start:end]
            if not is_utf8(text):
                place = orjson.dumps(_place(opened, is_key=is_key))
                if len(value) + len(note) + len(raw) - copied - len(text) + least_bytes(text) > most:
                    return _too_long(most)
                value += memoryview(raw)[copied:start]
                begin, copied = len(value), end
                append_windows_1252(value, text)
                size += len(value) - begin - len(text) + len(place) + len(text) * 4 // 3 + 6
                if places.find(place, note) >= 0:
                    return Reason.BAD_JSON, "not UTF-8, and a key is repeated"
                if len(raw) + size > most:
                    return _too_long(most)
                if len(note) > 1:
                    note += b","
                places.add(len(note), 0)
                note += b'%b:"' % place
                write_base64(note, text)
                note += b'"'
                if places.crowded:
                    yield from places.grow(note)
                if is_key:
                    text = bytes(memoryview(value)[begin:])
            if is_key:
                assert top is not None
                top.key = bytes(text)
                continue
        if top is not None:  # a value has ended
            top.count += 1
            top.key = None
    if len(note) == 1:
        return MendedJson(raw, b"")
    value += memoryview(raw)[copied:]
    note += b"}"
    return MendedJson(value, bytes(note))


def _too_long(most: int) -> Refusal:
    return Reason.OVERSIZED, f"more than LIMITS__EVENT_BYTES ({most}) with texts that are not UTF-8"


def _place(opened: list[_Open], *, is_key: bool) -> str:
    """Returns the pointer to the text that has just been read; ``~key`` and a number: the key of that member (from 0)."""
    outer = opened[: len(opened) - is_key]
    parts = [pointer(_key(each.key or b"")) if each.is_map else str(each.count) for each in outer]
    return "".join(f"/{part}" for part in parts) + (f"~key{opened[-1].count}" if is_key else "")


def _key(raw: bytes) -> str:
    """Returns a key as its text, without JSON's escapes; as it is if these are bad."""
    try:
        return str(orjson.loads(b'"%b"' % raw))
    except orjson.JSONDecodeError:
        return raw.decode("utf-8", "replace")
