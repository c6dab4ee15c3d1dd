"""The bytes to explain: a file's or standard input's, raw, in hex or out of a capture; and which protocol they are."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

import typer

from headrace_cli.errors import CommandError
from headrace_cli.wire.explain import capture
from headrace_cli.wire.explain.receiver import EXPLANATIONS

CHUNK: Final = 64 << 10
_HEX: Final = re.compile(rb"[0-9a-fA-F\s:]*")
_HEX_DIGIT: Final = re.compile(rb"[0-9a-fA-F]")
_NOT_HEX: Final = b" \t\r\n\v\f:"


def read(name: str, *, as_hex: bool, connection: int = 0, server: bool = False) -> Iterator[bytes]:
    """Yield the bytes in pieces, decoded if they are hex (`as_hex`, or nothing but hex at the beginning).

    Of a capture of packets: what the client, or the `server`, of the `connection` of that number has sent.

    Raises `CommandError` for what cannot be read, is empty, or is not the hex that it begins as.
    """
    with _opened(name) as stream:
        beginning = stream.read(CHUNK)
        if not beginning.strip():
            raise CommandError(f"{_title(name)} is empty: there is nothing to explain.", status=2)
        if beginning.startswith(capture.BEGINNINGS):
            yield _captured(beginning, stream, connection, server=server)
            return
        if connection:
            raise CommandError(f"--connection: {_title(name)} is no capture of packets.", status=2)
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


def _captured(beginning: bytes, stream: BinaryIO, connection: int, *, server: bool) -> bytes:
    chosen = capture.choose(capture.read_all(beginning, stream), connection)
    data, lacks = (chosen.server if server else chosen.client).data()
    if not data:
        raise CommandError(f"The {'server' if server else 'client'} has sent nothing that the capture holds.", status=2)
    if lacks:
        typer.echo(f"The capture lacks what comes behind byte {len(data):,}: the rest is left out.", err=True)
    return data


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


def protocol_of(beginning: bytes) -> str:
    """The protocol that begins so. Raises `CommandError` if none does."""
    if beginning[:2] == b"\x16\x03":
        raise CommandError("These bytes are TLS: what is encrypted cannot be explained.", status=2)
    for name, explanation in EXPLANATIONS.items():
        if explanation.begins(beginning):
            return name
    raise CommandError(
        f"No protocol begins with {beginning[:4].hex(' ')}: name it with --protocol, or say --hex.", status=2
    )
