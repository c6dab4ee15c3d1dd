"""Lumberjack v2, as Beats speak it."""

from __future__ import annotations

from headrace_common.record.contract import Reason
from headrace_lumberjack.client import LumberjackClient

from tests.contract.dialect import Conversation, Dialect


class LumberjackDialect(Dialect):
    """See `contract.dialect.Dialect`."""

    name = "lumberjack"
    module = "headrace_lumberjack"
    fault = Reason.BAD_JSON
    malformed = LumberjackClient.malformed
    added = frozenset({"@metadata", "@timestamp", "agent", "log"})

    def conversation(self) -> Conversation:
        return Conversation(LumberjackClient())
