"""What clients of today's dialect say."""

from __future__ import annotations

from headrace_segment.store.records import Numbering
from headrace_segment.wire import today as said
from headrace_segment.wire.codes import Kind
from headrace_segment.wire.today import MESSAGES, NEWEST, OLDEST

from tests.segment.recorded import W1
from tests.segment.speaking import events, raw

say = MESSAGES.encode
HELLO = say(said.Hello(NEWEST, OLDEST))
REQUEST = (7 << 32) + 1
NO_LEVEL = Numbering.EVENTS.first


def append_block(writer: bytes, content: bytes) -> bytes:
    """An AppendBlock: whole events, and the bytes after them."""
    return raw(Kind.BEGIN_APPEND_BLOCK, writer + content)


def setup(segment: str = "a", writer: bytes = W1, request: int = REQUEST) -> bytes:
    return say(said.SetupAppend(request, writer, segment))


def append(level: int, *data: bytes, writer: bytes = W1, request: int = REQUEST, count: int | None = None) -> bytes:
    """A block of these events, whose last one has number `level`."""
    whole = events(*data)
    end = said.AppendBlockEnd(writer, len(whole), b"", len(data) if count is None else count, level, request)
    return append_block(writer, whole) + say(end)


def append_bytes(level: int, data: bytes) -> bytes:
    """A block without frames, all of it in its end."""
    return say(said.AppendBlockEnd(W1, 0, data, 1, level, REQUEST))


def create(segment: str = "a", request: int = REQUEST) -> bytes:
    return say(said.CreateSegment(request, segment, 0, 0))


def read(segment: str = "a", offset: int = 0, length: int = 1000, request: int = REQUEST) -> bytes:
    return say(said.ReadSegment(segment, offset, length, "", request))


def info(segment: str = "a", request: int = REQUEST) -> bytes:
    return say(said.GetSegmentInfo(request, segment))


KEEP_ALIVE = say(said.KeepAlive())
