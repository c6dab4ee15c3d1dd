"""Takes valid JSON texts apart and leaves their elements byte for byte."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec
from headrace_common.record.json_object import SHORT
from headrace_common.record.json_text import Bytes, count

_OUTSIDE: Final = re.compile(rb'["\[\]{},]')
_INSIDE: Final = re.compile(rb'["\\]')
_BETWEEN: Final = re.compile(rb"[ \t\r\n,]*+")
DENSE: Final = 64
"""A list is cut at once only with at least this many bytes per opening bracket: each cut is an object of about 100 bytes."""
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode
_pairs = msgspec.json.Decoder(list[tuple[msgspec.Raw, msgspec.Raw]]).decode
_pair = msgspec.json.Decoder(tuple[msgspec.Raw, msgspec.Raw]).decode
_text = msgspec.json.Decoder(str).decode
_integer = msgspec.json.Decoder(int, strict=True).decode


STEP: Final = 1024
"""Brackets, commas and texts that are looked at between two pauses: about half a millisecond."""


def elements(text: memoryview) -> Iterator[tuple[int, memoryview] | None]:
    """Yields the start and the text of each element of a valid array, and None where others may run.

    Memory use follows the element, not the list.
    """
    at = 1
    if count(text, b"[") * DENSE <= len(text):
        for element in _elements(text):
            at = _between(text, at)
            yield at, text[at : at + len(element)]
            at += len(element)
        return
    start, level, inside, seen = at, 1, False, 0
    while level:
        seen += 1
        if seen % STEP == 0:
            yield None
        match = (_INSIDE if inside else _OUTSIDE).search(text, at)
        assert match is not None
        at = match.end()
        byte = text[match.start()]
        if byte == 0x5C:
            at += 1
        elif byte == 0x22:
            inside = not inside
        elif byte in b"[{":
            level += 1
        elif byte in b"]}":
            level -= 1
        if not inside and (level == 0 or (byte == 0x2C and level == 1)):
            start = _between(text, start)
            end = at - 1
            while end > start and text[end - 1] in b" \t\r\n":
                end -= 1
            if start < end:
                yield start, text[start:end]
            start = at


def _between(text: memoryview, at: int) -> int:
    """Returns where the next element begins."""
    found = _BETWEEN.match(text, at)
    assert found is not None
    return found.end()


def pair(text: Bytes) -> tuple[bytes, Bytes] | None:
    """Returns the texts of an array's two elements, the second not copied if it is long; None if it is not an array of two."""
    try:
        first, second = _pair(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return bytes(first), memoryview(second) if len(second) > SHORT else bytes(second)


def pairs(text: memoryview) -> list[tuple[msgspec.Raw, msgspec.Raw]] | None:
    """Returns the elements of an array if all are arrays of two. None if not, or if the cuts would take too much memory."""
    if count(text, b"[") * DENSE > len(text):
        return None
    try:
        return _pairs(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def string(text: bytes) -> str | None:
    """Returns the text of a JSON string; None for any other value."""
    try:
        return _text(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def integer(text: bytes | msgspec.Raw) -> int | None:
    """Returns the value of a JSON integer; None for any other value."""
    try:
        return _integer(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
