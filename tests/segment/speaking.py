"""What clients of the original dialect say."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from headrace_segment.wire.codes import Kind
from headrace_segment.wire.codes import message as raw
from headrace_segment.wire.original import (
    MESSAGES,
    BeginAppendBlock,
    EndAppendBlock,
    Event,
    KeepAlive,
    PartialMessage,
    ReadSegment,
    SetupAppend,
)

from tests.segment.recorded import W1

say = MESSAGES.encode


def event(data: bytes) -> bytes:
    return say(Event(data))


def events(*data: bytes) -> bytes:
    """As a segment holds them."""
    return b"".join(map(event, data))


def setup(segment: str = "a", writer: bytes = W1) -> bytes:
    return say(SetupAppend(writer, segment))


def read(segment: str = "a", offset: int = 0, length: int = 1000) -> bytes:
    return say(ReadSegment(segment, offset, length))


def keep_alive(data: bytes = b"") -> bytes:
    return say(KeepAlive(data))


def part(place: int, data: bytes) -> bytes:
    return say(PartialMessage(place, data))


def begin(offset: int, capacity: int, writer: bytes = W1) -> bytes:
    return say(BeginAppendBlock(writer, offset, capacity))


def end(offset: int, length: int, writer: bytes = W1) -> bytes:
    return say(EndAppendBlock(writer, offset, length))


def block(offset: int, content: bytes, writer: bytes = W1, *, length: int | None = None, capacity: int = 0) -> bytes:
    """`length`: if `content` is more than events."""
    length = len(content) if length is None else length
    return begin(offset, max(capacity, len(content)), writer) + content + end(offset + length, length, writer)


def block_inside(content: bytes) -> bytes:
    """A block within its BeginAppendBlock."""
    body = W1 + struct.pack(">qi", 0, len(content)) + content
    return raw(Kind.BEGIN_APPEND_BLOCK, body) + end(len(content), len(content))


def in_parts(message: bytes, sizes: Iterable[int]) -> bytes:
    """A message in parts of these sizes, and a last one with the rest."""
    pieces = []
    for size in sizes:
        pieces.append(message[:size])
        message = message[size:]
    if not pieces:
        pieces.append(b"")
    pieces.append(message)
    return b"".join(part(0 if at == 0 else 1 + (at == len(pieces) - 1), piece) for at, piece in enumerate(pieces))


def over_the_end(before: bytes, split: bytes, at: int, writer: bytes = W1) -> bytes:
    """A block whose last event ends behind its end: `at` of its bytes come before."""
    first = before + part(0, split[:at])
    length = len(before) + len(split)
    return begin(0, len(first), writer) + first + end(length, length, writer) + part(2, split[at:])


__all__ = ["raw"]
