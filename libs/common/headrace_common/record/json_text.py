"""Long texts, read and written in pieces: orjson reserves eight bytes for each byte of a text, and Python up to four."""

from __future__ import annotations

import codecs
import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Final

import orjson

_ESCAPE: Final = 6
"""Bytes of the longest escape."""

_HIGH: Final = re.compile(rb"\\u[dD][89abAB]")
_LOW: Final = re.compile(rb"\\u[dD][c-fC-F]")
"""Halves of a pair of surrogates."""

_utf8: Final = codecs.getincrementaldecoder("utf-8")
_WINDOWS_1252: Final = {0xDC00 + byte: bytes((byte,)).decode("cp1252", "replace") for byte in range(0x80, 0x100)}

PIECE: Final = 12 << 10
"""Bytes of a text that are written at once: a multiple of three, so that base64 may be cut there."""

TOKEN: Final = re.compile(
    rb'[ \t\r\n:,]*+(?:"((?:[^"\\]++|\\.)*+)"|([\[{])|([\]}])|([^\[\]{}", \t\r\n:,]++))', re.DOTALL
)
"""A token of JSON, with what separates it from the one before: a text without its quotes, an opening bracket, a closing one, or
another value.
"""

TOKENS: Final = 512
"""Tokens of JSON between two pauses: about half a millisecond."""

Bytes = bytes | bytearray | memoryview


def letters_of(content: Bytes) -> Iterator[str]:
    """Yields a text in pieces; a byte that is no letter of UTF-8 is half a surrogate pair (PEP 383)."""
    decoder = _utf8("surrogateescape")
    for at in range(0, len(content), PIECE):
        yield decoder.decode(bytes(content[at : at + PIECE]), at + PIECE >= len(content))


def readable(letters: str) -> str:
    """Returns a piece of `letters_of` with all bytes read that are no letters of UTF-8."""
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
    for piece in _pieces(content):
        out += b64encode(piece)


def member_of(name: str, value: Bytes) -> bytes:
    """Returns a member of a JSON object. `name`: a word; `value`: JSON."""
    return b"".join((b'"', name.encode(), b'":', value))


def object_of(members: list[bytes]) -> bytes:
    """Returns the JSON object of these members, each a text, a colon and a value."""
    pieces = [b","] * (2 * len(members) + 1)
    pieces[0], pieces[1::2], pieces[-1] = b"{", members, b"}"
    return b"".join(pieces)


def count(text: Bytes, byte: bytes) -> int:
    """Returns how often a byte is in a text."""
    return sum(piece.count(byte) for piece in _pieces(text))


def utf8_of(text: Bytes) -> Iterator[bytes]:
    """Yields a text of JSON in UTF-8, in pieces; as written where it is none, such as half a surrogate pair."""
    at, end = 1, len(text) - 1
    while at < end:
        cut = _cut(text, at, end)
        piece = bytes(text[at:cut])
        at = cut
        try:
            yield orjson.loads(b'"%b"' % piece).encode()
        except ValueError:
            yield piece


def _cut(text: Bytes, at: int, end: int) -> int:
    """Returns where a piece of the text of JSON ends that begins at `at`: within no escape, pair of surrogates or letter."""
    cut = at + PIECE
    if cut >= end:
        return end
    last = bytes(text[cut - _ESCAPE : cut]).rfind(b"\\")
    if last >= 0 and _escapes(text, at, last := cut - _ESCAPE + last):
        pair = _LOW.match(text, last) and _HIGH.match(text, last - 6) and _escapes(text, at, last - 6)
        return last - 6 if pair else last
    while text[cut] & 0xC0 == 0x80:
        cut -= 1
    return cut


def _escapes(text: Bytes, at: int, place: int) -> bool:
    """Returns whether the backslash at `place` begins an escape, and is not escaped itself, in what begins at `at`."""
    before = bytes(text[at : place + 1])
    return (len(before) - len(before.rstrip(b"\\"))) % 2 == 1


def _pieces(content: Bytes) -> Iterator[bytes]:
    return (bytes(content[at : at + PIECE]) for at in range(0, len(content), PIECE))
