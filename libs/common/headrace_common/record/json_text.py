"""Long texts, read and written in pieces: orjson reserves eight bytes for each byte of a text, and Python up to four."""

from __future__ import annotations

import codecs
from base64 import b64encode
from collections.abc import Iterator
from typing import Final

import orjson

from headrace_common.record.contract import Attribute, Note

_utf8: Final = codecs.getincrementaldecoder("utf-8")
_WINDOWS_1252: Final = {0xDC00 + byte: bytes((byte,)).decode("cp1252", "replace") for byte in range(0x80, 0x100)}

PIECE: Final = 12 << 10
"""Bytes of a text that are written at once: a multiple of three, so that base64 may be cut there."""

Bytes = bytes | bytearray | memoryview


def letters_of(content: Bytes) -> Iterator[str]:
    """Yields a text in pieces; a byte that is no letter of UTF-8 is half a surrogate pair (PEP 383)."""
    if len(content) <= PIECE:
        yield str(content, "utf-8", "surrogateescape")
        return
    decoder = _utf8("surrogateescape")
    for at in range(0, len(content), PIECE):
        yield decoder.decode(bytes(content[at : at + PIECE]), at + PIECE >= len(content))


def readable(letters: str) -> str:
    """Returns a piece of `letters_of` in which bytes that are no letters of UTF-8 are read as Windows-1252, one by one.

    The importer of skaes/logjam-tools does so, too (`convert_to_win1252`). The five bytes that Windows-1252 does not define (81,
    8D, 8F, 90, 9D) become U+FFFD. The attribute `raw` keeps the event as it was received.
    """
    return letters.translate(_WINDOWS_1252)


def write_text(out: bytearray, content: Bytes) -> bool:
    """Appends a text to JSON. Returns whether it is UTF-8."""
    whole = True
    out += b'"'
    for letters in letters_of(content):
        try:
            written = orjson.dumps(letters)
        except TypeError:
            written, whole = orjson.dumps(readable(letters)), False
        out += memoryview(written)[1:-1]
    out += b'"'
    return whole


def write_base64(out: bytearray, content: Bytes) -> None:
    """Appends bytes as base64."""
    for at in range(0, len(content), PIECE):
        out += b64encode(content[at : at + PIECE])


def member_of(name: str, value: Bytes) -> bytes:
    """Returns a member of a JSON object. `name`: a word; `value`: JSON."""
    return b"".join((b'"', name.encode(), b'":', value))


def object_of(members: list[bytes]) -> bytes:
    """Returns the JSON object of these members, each a text, a colon and a value."""
    pieces = [b","] * (2 * len(members) + 1)
    pieces[0], pieces[1::2], pieces[-1] = b"{", members, b"}"
    return b"".join(pieces)


def noted(notes: tuple[Note, ...], raw: Bytes) -> list[bytes]:
    """Returns the attributes of an event that JSON cannot hold exactly, as members of a JSON object: why, and its bytes."""
    text = bytearray(b'"')
    write_base64(text, raw)
    text += b'"'
    return [member_of(Attribute.NOTES, b'["%b"]' % '","'.join(notes).encode()), member_of(Attribute.RAW, text)]


def with_raw(value: Bytes, raw: Bytes) -> int:
    """Returns how many bytes a value and its `raw` take together."""
    return len(value) + len(raw) * 4 // 3
