"""Lumberjack v2, as Beats speak it."""

from __future__ import annotations

from headrace_lumberjack.client import LumberjackClient

from tests.contract.dialect import Dialect


class LumberjackDialect(Dialect):
    """See `contract.dialect.Dialect`."""

    name = "lumberjack"
    client = LumberjackClient
    malformed = LumberjackClient.malformed
    added = frozenset({"@metadata", "@timestamp", "agent", "log"})
