"""Lumberjack v2, as Beats speak it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from headrace_common.record.contract import Reason
from headrace_lumberjack.client import LumberjackClient
from headrace_lumberjack.wire import HEADER, json_frame

from tests.contract.dialect import EVERYTHING, Conversation, Dialect


class LumberjackConversation(Conversation):
    """One window in one C frame."""

    client: LumberjackClient

    def __init__(self) -> None:
        super().__init__(LumberjackClient())

    def measured(self, documents: Sequence[bytes]) -> int:
        """A C frame's, whose stream is stored and not compressed."""
        frames = b"".join(json_frame(number, each) for number, each in enumerate(documents, 1))
        return HEADER + len(zlib.compress(frames, 0))

    def unpacked(self, documents: Sequence[bytes]) -> bytes:
        self.client.level, before = 0, self.client.level
        frame = self.client.payload(documents)
        self.client.level = before
        return frame


class LumberjackDialect(Dialect):
    """See `contract.dialect.Dialect`."""

    name = "lumberjack"
    module = "headrace_lumberjack"
    can = EVERYTHING
    fault = Reason.BAD_JSON
    malformed = LumberjackClient.malformed
    added = frozenset({"@metadata", "@timestamp", "agent", "log"})

    def conversation(self) -> LumberjackConversation:
        return LumberjackConversation()
