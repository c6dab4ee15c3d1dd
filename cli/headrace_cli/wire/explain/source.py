"""The bytes to explain: a file's or standard input's, raw or in hex."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from headrace_cli.ground import CommandError

CHUNK: Final = 64 << 10
_HEX: Final = re.compile(rb"[0-9a-fA-F\s:]*")
_HEX_DIGIT: Final = re.compile(rb"[0-9a-fA-F]")
_NOT_HEX: Final = b" \t\r\n\v\f:"


def read(name: str, *, as_hex: bool) -> Iterator[bytes]:
    """Yield the bytes in pieces, decoded if they are hex (`as_hex`, or nothing but hex at the beginning).

    Raises `CommandError` for what cannot be read, is empty, or is not the hex that it begins as.
    """
    with _opened(name) as stream:
        beginning = stream.read(CHUNK)
        if not beginning.strip():
            raise CommandError(f"{_title(name)} is empty: there is nothing to explain.", status=2)
        if as_hex or (_HEX.fullmatch(beginning) is not None and _HEX_DIGIT.search(beginning) is not None):
            yield from _from_hex(name, beginning, stream)
            return
        yield beginning
        while piece := stream.read(CHUNK):
            yield piece


def _title(name: str) -> str:
    return "standard input" if name == "-" else name


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(name).open("rb") as file:
            yield file
    except OSError as error:
        raise CommandError(f"{name} cannot be read: {error.strerror}.", status=2) from error


def _from_hex(name: str, beginning: bytes, stream: BinaryIO) -> Iterator[bytes]:
    odd = b""
    piece = beginning
    while piece:
        digits = odd + piece.translate(None, _NOT_HEX)
        even = len(digits) & ~1
        try:
            data = bytes.fromhex(digits[:even].decode("ascii"))
        except ValueError as error:
            raise CommandError(f"{_title(name)} is not hex alone: leave out offsets and text.", status=2) from error
        odd = digits[even:]
        if data:
            yield data
        piece = stream.read(CHUNK)
    if odd:
        raise CommandError(f"{_title(name)} has an odd number of hex digits.", status=2)
