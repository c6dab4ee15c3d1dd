"""The dialects of the segment protocol: a writer of its own, and each frame a block (the original: in its BeginAppendBlock)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from headrace_common.record.contract import Reason
from headrace_segment.client import SegmentClient
from headrace_segment.wire import today
from headrace_segment.wire.codes import HEADER, Kind, message
from headrace_segment.wire.today import NEWEST, OLDEST

from tests.contract.dialect import EVENT_BYTES, Dialect


class Writer(SegmentClient):
    """Its broken event is larger than one may be."""

    def broken(self, event: Mapping[str, Any]) -> bytes:
        return self.document(event) + bytes(EVENT_BYTES)


class WriterOfToday(Writer):
    """The same in today's dialect, whose events are numbered from 1. It creates its segment."""

    messages = today.MESSAGES
    acknowledgement = today.DataAppended

    def again(self) -> bytes:
        super().again()
        say = today.MESSAGES.encode
        hello = say(today.Hello(NEWEST, OLDEST)) + say(today.CreateSegment(1, self.segment, 0, 0))
        return hello + say(today.SetupAppend(1, self.writer, self.segment, ""))

    def _block(self, content: bytes, events: int) -> bytes:
        self.level += events
        end = today.AppendBlockEnd(self.writer, len(content), b"", events, self.level, 1)
        return message(Kind.BEGIN_APPEND_BLOCK, self.writer + content) + today.MESSAGES.encode(end)


class SegmentDialect(Dialect):
    """See `contract.dialect.Dialect`."""

    name = "segment"
    client = Writer
    sections: Mapping[str, Mapping[str, object]] = {"limits": {"event_bytes": EVENT_BYTES}}
    stored_again = False
    fault = Reason.OVERSIZED
    malformed = HEADER.pack(99, 0)
    content_type = "application/octet-stream"
    segments = 1

    def stream(self, record_headers: Mapping[str, bytes]) -> None:
        super().stream(record_headers)
        attributes = orjson.loads(record_headers["ce_attributes"])
        assert attributes.keys() == {"writer", "level", "time"}


class TodayDialect(SegmentDialect):
    """What Pravega's clients speak, on the same port."""

    variant = "today"
    client = WriterOfToday
    malformed = HEADER.pack(Kind.EVENT, 0)
