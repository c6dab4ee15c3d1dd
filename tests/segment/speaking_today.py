"""What clients of today's dialect say."""

from __future__ import annotations

from headrace_segment.store.records import Numbering
from headrace_segment.wire import today as said
from headrace_segment.wire.codes import Kind
from headrace_segment.wire.today import MESSAGES, NEWEST, OLDEST

from tests.segment.recorded import W1
from tests.segment.speaking import event, events, raw

say = MESSAGES.encode
HELLO = say(said.Hello(NEWEST, OLDEST))
REQUEST = (7 << 32) + 1
NO_LEVEL = Numbering.EVENTS.first


def append_block(writer: bytes, content: bytes) -> bytes:
    """An AppendBlock: whole events, and the bytes after them."""
    return raw(Kind.BEGIN_APPEND_BLOCK, writer + content)


def setup(segment: str = "a", writer: bytes = W1, request: int = REQUEST, token: str = "") -> bytes:
    return say(said.SetupAppend(request, writer, segment, token))


def append(
    level: int, *data: bytes, writer: bytes = W1, request: int = REQUEST, count: int | None = None, pad: int = 0
) -> bytes:
    """A block of these events, whose last one has number `level`."""
    whole = events(*data)
    content = whole + (raw(Kind.PADDING, bytes(pad)) if pad else b"")
    end = said.AppendBlockEnd(writer, len(whole), b"", len(data) if count is None else count, level, request)
    return append_block(writer, content) + say(end)


def append_over_the_end(level: int, *data: bytes, at: int, writer: bytes = W1, request: int = REQUEST) -> bytes:
    """The same; its last event is in the block with `at` of its bytes, the rest is in the block's end."""
    whole, last = events(*data[:-1]), event(data[-1])
    content = whole + raw(Kind.PARTIAL_MESSAGE, last[:at])
    return append_block(writer, content) + say(
        said.AppendBlockEnd(writer, len(whole), last[at:], len(data), level, request)
    )


def append_bytes(level: int, data: bytes, count: int = 1, writer: bytes = W1) -> bytes:
    """A block without frames, all of it in its end."""
    return say(said.AppendBlockEnd(writer, 0, data, count, level, REQUEST))


def create(segment: str = "a", request: int = REQUEST) -> bytes:
    return say(said.CreateSegment(request, segment, 0, 0))


def read(segment: str = "a", offset: int = 0, length: int = 1000, request: int = REQUEST) -> bytes:
    return say(said.ReadSegment(segment, offset, length, "", request))


def info(segment: str = "a", request: int = REQUEST) -> bytes:
    return say(said.GetSegmentInfo(request, segment))


KEEP_ALIVE = say(said.KeepAlive())
