"""Lumberjack as Headrace knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace_common.operations.settings import ServiceSettings
from headrace_common.protocol import Port, Protocol

if TYPE_CHECKING:
    from headrace_common.receiver import Parts, Runtime

PORT: Final = 5044
"""The default port of Beats and Logstash."""


def build(runtime: Runtime[ServiceSettings]) -> Parts:
    """Makes stream listeners only: the protocol has no other transport."""
    from headrace_common.receiver import Memory, Parts, stream_listeners

    from headrace_lumberjack.session import LumberjackSession

    limits, memory = runtime.settings.limits, Memory()
    for limit in ("LUMBERJACK__PAIRS", "LUMBERJACK__WINDOW_EVENTS"):
        runtime.metrics.limit_hits.labels(limit)
    return Parts(stream_listeners(runtime, PORT, lambda peer: LumberjackSession(peer, limits, memory)))


PROTOCOL: Final = Protocol(
    name="lumberjack",
    title="Lumberjack",
    listeners=(Port("tcp", PORT),),
    ops_port=8081,
    settings=ServiceSettings,
    build=build,
    client="headrace_lumberjack.client:LumberjackClient",
    session="headrace_lumberjack.session:LumberjackSession",
    again="headrace_lumberjack.again:read",
    hint="filebeat -E output.elasticsearch.enabled=false -E 'output.logstash.hosts=[\"{listen}\"]'",
)
