"""A client of the original dialect: a writer of its own, which appends to one segment; each frame is a block of events. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_common.session.client import STREAM, Answer, OrderedClient, Remark
from typing_extensions import override

from headrace_segment.wire import original
from headrace_segment.wire.parser import ReplyParser


class SegmentClient(OrderedClient):
    """A writer of the original dialect. A block is acknowledged by the level at its end; a resend has the same level."""

    malformed = b"\xff" * 16  # a message of type -1
    messages = original.MESSAGES
    acknowledgement: type[Any] = original.DataAppended
    segment = STREAM

    def __init__(self) -> None:
        super().__init__()
        self.writer = os.urandom(16)
        self.level = 0
        """Level at the end of the last frame: the server names it when the frame is stored."""
        self._ends: dict[int, int] = {}
        self._replies = ReplyParser(self.messages)

    @override
    def document(self, event: Mapping[str, Any]) -> bytes:
        return orjson.dumps(event)

    @override
    def broken(self, event: Mapping[str, Any]) -> bytes:
        return b""

    @override
    def payload(self, documents: Sequence[bytes]) -> bytes:
        content = b"".join(original.MESSAGES.encode(original.Event(each)) for each in documents)
        block = self._block(content, len(documents))
        self._ends[self._next(len(documents))] = self.level
        while len(self._ends) > len(self._sizes):
            del self._ends[next(iter(self._ends))]
        return block

    def _block(self, content: bytes, events: int) -> bytes:
        encode = original.MESSAGES.encode
        before, self.level = self.level, self.level + len(content)
        begin = encode(original.BeginAppendBlock(self.writer, before, len(content)))
        return begin + content + encode(original.EndAppendBlock(self.writer, self.level, len(content)))

    @override
    def again(self) -> bytes:
        self._replies = ReplyParser(self.messages)
        return super().again() + original.MESSAGES.encode(original.SetupAppend(self.writer, self.segment))

    @override
    def receive(self, data: bytes) -> list[Answer | Remark]:
        found: list[Answer | Remark] = []
        for reply in self._replies.receive_all(data):
            if not isinstance(reply, self.acknowledgement):
                found.append(Remark(type(reply).__name__))
                continue
            if reply.writer != self.writer:
                raise ProtocolError("an acknowledgement of another writer")
            while self._under_way and self._ends[self._under_way[0]] <= reply.level:
                frame = self._under_way.popleft()
                found.append(self._answer(frame, self._sizes[frame]))
        return found
