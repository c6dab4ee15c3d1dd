"""Text that is not UTF-8, in every protocol: the whole text is read as Windows-1252, and the attribute `invalid_utf8` keeps
its bytes.

So does the importer of skaes/logjam-tools (`convert_to_win1252`): text by text, so what is UTF-8 elsewhere in the event stays
what it is, and the five bytes that Windows-1252 does not define (81, 8D, 8F, 90, 9D) become U+FFFD.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Generator
from typing import Final, NamedTuple

import orjson

from headrace_common.record.contract import Attribute, Reason

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


class Mended(NamedTuple):
    """JSON in UTF-8. `note`: the value of the attribute `invalid_utf8`, as JSON; empty: all texts were UTF-8."""

    value: bytes
    note: bytes

    def attributes(self, others: bytes | None) -> bytes | None:
        """`others`, an object as JSON, with the note in it."""
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


def text_of(raw: bytes) -> str:
    """The text of bytes that are not UTF-8."""
    return raw.decode("cp1252", "replace")


def pointer(key: str) -> str:
    """A key as a part of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def mended(raw: bytes, depth: int, most: int) -> Generator[None, None, Mended | Refusal]:
    """Returns JSON whose texts are UTF-8; yields between steps, of which each is bounded but for the length of one text.

    The bytes that are kept are those between a text's quotes. Bytes that are no JSON either way may give any JSON or none:
    the caller checks what is returned. `depth`: most open containers; `most`: bytes of the JSON and its note together.
    """
    pieces: list[bytes] = []
    kept: dict[str, bytes] = {}
    opened: list[_Open] = []
    at = copied = size = steps = 0
    while found := TOKEN.match(raw, at):
        at = found.end()
        steps += 1
        if steps % STEPS == 0:
            yield
        top = opened[-1] if opened else None
        text, opens, closes, _ = found.groups()
        if closes is not None:
            if top is not None:
                opened.pop()
                top = opened[-1] if opened else None
        elif opens is not None:
            opened.append(_Open(is_map=opens == b"{"))
            if len(opened) > depth:
                return Reason.TOO_DEEP, f"nested deeper than {depth}"
            continue
        elif text is not None:
            is_key = top is not None and top.is_map and top.key is None
            if not text.isascii() and not _is_utf8(text):
                place = _place(opened, is_key=is_key)
                better = text_of(text).encode()
                pieces += (raw[copied : found.start(1)], better)
                copied = found.end(1)
                size += len(better) - len(text) + len(place) + len(text) * 4 // 3 + 8
                if place in kept:
                    return Reason.BAD_JSON, "not UTF-8, and a key is repeated"
                if len(raw) + size > most:
                    return Reason.OVERSIZED, f"more than LIMITS__EVENT_BYTES ({most}) with texts that are not UTF-8"
                kept[place] = text
                text = better
            if is_key:
                assert top is not None
                top.key = text
                continue
        if top is not None:  # a value has ended
            top.count += 1
            top.key = None
    pieces.append(raw[copied:])
    note = (
        orjson.dumps({place: orjson.Fragment(b'"%b"' % b64encode(text)) for place, text in kept.items()})
        if kept
        else b""
    )
    return Mended(b"".join(pieces), note)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _place(opened: list[_Open], *, is_key: bool) -> str:
    """The pointer to the text that has just been read; ``~key`` and a number: the key of that member (from 0)."""
    outer = opened[: len(opened) - is_key]
    parts = [pointer(_key(each.key or b"")) if each.is_map else str(each.count) for each in outer]
    return "".join(f"/{part}" for part in parts) + (f"~key{opened[-1].count}" if is_key else "")


def _key(raw: bytes) -> str:
    """A key as its text, without JSON's escapes; as it is if these are bad."""
    try:
        return str(orjson.loads(b'"%b"' % raw))
    except orjson.JSONDecodeError:
        return raw.decode("utf-8", "replace")
