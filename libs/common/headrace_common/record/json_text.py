"""A long text as JSON, written in pieces: orjson reserves eight bytes for each byte of a text, and Python up to four."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from typing import Final

import orjson

from headrace_common.record.windows_1252 import text_of

PIECE: Final = 16 << 10
"""Bytes of a text that are written at once."""


def utf8_json(content: bytes) -> bytes | bytearray:
    """Returns the JSON of a text. Raises UnicodeDecodeError if it is not UTF-8."""
    if len(content) <= PIECE:
        return orjson.dumps(content.decode())
    return _quoted(codecs.iterdecode(_pieces(content), "utf-8"))


def windows_1252_json(content: bytes) -> bytearray:
    """Returns the JSON of a text that is not UTF-8."""
    return _quoted(map(text_of, _pieces(content)))


def _pieces(content: bytes) -> Iterator[bytes]:
    return (content[at : at + PIECE] for at in range(0, len(content), PIECE))


def _quoted(texts: Iterable[str]) -> bytearray:
    out = bytearray(b'"')
    for text in texts:
        out += orjson.dumps(text)[1:-1]
    out += b'"'
    return out
