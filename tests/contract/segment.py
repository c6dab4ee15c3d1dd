"""The dialects of the segment protocol: a writer of its own, and each frame a block (the original: in its BeginAppendBlock)."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from typing import Any

import orjson
from headrace_common.record.contract import Reason
from headrace_segment.wire import messages as today
from headrace_segment.wire.codes import HEADER, Kind
from headrace_segment.wire.codes import message as raw
from headrace_segment.wire.original import MESSAGES, AppendSetup, DataAppended, EndAppendBlock, Event, SetupAppend
from headrace_segment.wire.replies import Replies
from headrace_segment.wire.today import NEWEST, OLDEST

from tests.contract.dialect import EVERYTHING, Can, Silent, Values

EVENT_BYTES = 128 << 10
SEGMENT = "contract"


class SegmentConversation:
    """A writer that begins at 0, wherever it connects: what it sends again is the same."""

    def __init__(self) -> None:
        self._writer = os.urandom(16)
        self._ends: list[int] = []
        self._acknowledged = 0
        self._replies = Replies()

    def _block(self, events: list[bytes]) -> bytes:
        content = b"".join(MESSAGES.encode(Event(data)) for data in events)
        before = self._ends[-1] if self._ends else 0
        after = before + len(content)
        first = b"" if self._ends else MESSAGES.encode(SetupAppend(self._writer, SEGMENT))
        self._ends.append(after)
        begin = raw(Kind.BEGIN_APPEND_BLOCK, self._writer + struct.pack(">qi", before, len(content)) + content)
        return first + begin + MESSAGES.encode(EndAppendBlock(self._writer, after, len(content)))

    def frame(self, values: Values) -> bytes:
        return self._block([orjson.dumps(value) for value in values])

    def faulty(self, values: Values) -> bytes:
        """An event that is larger than one may be."""
        events = [orjson.dumps(value) for value in values]
        events.insert(len(events) // 2, values[0]["mark"].encode() + bytes(EVENT_BYTES))
        return self._block(events)

    def sized(self, values: Values, size: int) -> bytes:
        """`size` bytes of whole events."""
        events = [orjson.dumps(value) for value in values]
        missing = size - sum(HEADER.size + len(event) for event in events)
        events[0] = orjson.dumps({**values[0], "pad": "x" * (missing - len(b',"pad":""'))})
        return self._block(events)

    def receive(self, data: bytes) -> list[int]:
        done = []
        for reply in self._replies.receive(data):
            assert isinstance(reply, AppendSetup | DataAppended), reply
            assert reply.writer == self._writer
            if isinstance(reply, DataAppended):
                assert reply.level in self._ends
                while self._acknowledged < len(self._ends) and self._ends[self._acknowledged] <= reply.level:
                    done.append(self._acknowledged)
                    self._acknowledged += 1
        return done


class TodayConversation:
    """The same in today's dialect: events are numbered from 1."""

    def __init__(self) -> None:
        self._writer = os.urandom(16)
        self._ends: list[int] = []
        self._acknowledged = 0
        self._replies = Replies(today.MESSAGES)

    def _block(self, events: list[bytes]) -> bytes:
        say = today.MESSAGES.encode
        content = b"".join(MESSAGES.encode(Event(data)) for data in events)
        after = (self._ends[-1] if self._ends else 0) + len(events)
        first = b""
        if not self._ends:
            first = say(today.Hello(NEWEST, OLDEST)) + say(today.CreateSegment(1, SEGMENT, 0, 0))
            first += say(today.SetupAppend(1, self._writer, SEGMENT, ""))
        self._ends.append(after)
        end = today.AppendBlockEnd(self._writer, len(content), b"", len(events), after, 1)
        return first + today.append_block(self._writer, content) + say(end)

    frame = SegmentConversation.frame
    faulty = SegmentConversation.faulty

    def sized(self, values: Values, size: int) -> bytes:
        """A block's message of `size` bytes: its writer, and whole events."""
        return SegmentConversation.sized(self, values, size - today.WRITER_BYTES)  # type: ignore[arg-type]

    def receive(self, data: bytes) -> list[int]:
        done = []
        for reply in self._replies.receive(data):
            if isinstance(reply, today.DataAppended):
                assert reply.writer == self._writer
                assert reply.level in self._ends
                while self._acknowledged < len(self._ends) and self._ends[self._acknowledged] <= reply.level:
                    done.append(self._acknowledged)
                    self._acknowledged += 1
            else:
                expected = today.Hello | today.SegmentCreated | today.SegmentAlreadyExists | today.AppendSetup
                assert isinstance(reply, expected), reply
        return done


class SegmentDialect(Silent):
    """See `contract.dialect.Dialect`."""

    name = "segment"
    module = "headrace_segment"
    sections: Mapping[str, Mapping[str, object]] = {"limits": {"event_bytes": EVENT_BYTES}}
    can = EVERYTHING & ~Can.STORE_AGAIN
    fault = Reason.OVERSIZED
    malformed = HEADER.pack(99, 0)
    content_type = "application/octet-stream"
    segments = 2

    def conversation(self) -> SegmentConversation:
        return SegmentConversation()

    def value(self, stored: dict[str, Any]) -> dict[str, Any]:
        return stored

    def stream(self, record_headers: Mapping[str, bytes]) -> None:
        assert record_headers["ce_subject"] == SEGMENT.encode()
        assert record_headers["ce_id"].startswith(b"d.")
        attributes = orjson.loads(record_headers["ce_attributes"])
        assert attributes.keys() == {"writer", "level", "time"}


class TodayDialect(SegmentDialect):
    """What Pravega's clients speak, on the same port."""

    variant = "today"
    malformed = HEADER.pack(Kind.EVENT, 0)

    def conversation(self) -> TodayConversation:  # type: ignore[override]
        return TodayConversation()
