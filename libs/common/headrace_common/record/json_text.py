"""Long texts, read and written in pieces: orjson reserves eight bytes for each byte of a text, and Python up to four."""

from __future__ import annotations

import codecs
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from typing import Final

import orjson

_ESCAPE: Final = 6
"""Bytes of the longest escape."""

_HIGH: Final = re.compile(rb"\\u[dD][89abAB]")
_LOW: Final = re.compile(rb"\\u[dD][c-fC-F]")
"""Halves of a pair of surrogates."""

_ASCII: Final = bytes(range(128))

PIECE: Final = 12 << 10
"""Bytes of a text that are written at once: a multiple of three, so that base64 may be cut there."""

Bytes = bytes | bytearray | memoryview


def write_utf8(out: bytearray, content: Bytes) -> None:
    """Appends a text to JSON. Raises UnicodeDecodeError if it is not UTF-8; then it appends nothing."""
    if len(content) <= PIECE:
        out += orjson.dumps(str(content, "utf-8"))
        return
    before = len(out)
    try:
        _write(out, codecs.iterdecode(_pieces(content), "utf-8"))
    except UnicodeDecodeError:
        del out[before:]
        raise


def least_bytes(content: Bytes) -> int:
    """Returns how many bytes a text that is not UTF-8 takes at least, with its own bytes as base64 beside."""
    return len(content) + len(content) * 4 // 3 + sum(len(piece.translate(None, _ASCII)) for piece in _pieces(content))


def write_windows_1252(out: bytearray, content: Bytes) -> None:
    """Appends a text that is not UTF-8 to JSON."""
    _write(out, map(text_of, _pieces(content)))


def write_base64(out: bytearray, content: Bytes) -> None:
    """Appends bytes as base64."""
    for piece in _pieces(content):
        out += b64encode(piece)


def append_windows_1252(out: bytearray, content: Bytes) -> None:
    """Appends a text that is not UTF-8 in UTF-8."""
    for piece in _pieces(content):
        out += text_of(piece).encode()


def member_of(name: str, value: Bytes) -> bytes:
    """Returns a member of a JSON object. `name`: a word; `value`: JSON."""
    return b"".join((b'"', name.encode(), b'":', value))


def object_of(members: list[bytes]) -> bytes:
    """Returns the JSON object of these members, each a text, a colon and a value."""
    pieces = [b","] * (2 * len(members) + 1)
    pieces[0], pieces[1::2], pieces[-1] = b"{", members, b"}"
    return b"".join(pieces)


def is_utf8(content: Bytes) -> bool:
    """Returns whether a text is UTF-8."""
    try:
        for _ in codecs.iterdecode(_pieces(content), "utf-8"):
            pass
    except UnicodeDecodeError:
        return False
    return True


def count(text: Bytes, byte: bytes) -> int:
    """Returns how often a byte is in a text."""
    return sum(piece.count(byte) for piece in _pieces(text))


def text_of(raw: bytes) -> str:
    """Returns the text of bytes that are not UTF-8."""
    return raw.decode("cp1252", "replace")


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


def _write(out: bytearray, texts: Iterable[str]) -> None:
    out += b'"'
    for text in texts:
        out += orjson.dumps(text)[1:-1]
    out += b'"'
