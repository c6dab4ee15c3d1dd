"""Lumberjack as Headrace knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace_common.protocol import Port, Protocol

from headrace_lumberjack.settings import PORT, LumberjackSettings

if TYPE_CHECKING:
    from headrace_common.receiver import Parts, Runtime


def build(runtime: Runtime[LumberjackSettings]) -> Parts:
    """Makes stream listeners only: the protocol has no other transport."""
    from headrace_common.receiver import Memory, Parts, stream_listeners

    from headrace_lumberjack.session import LumberjackSession

    settings, memory = runtime.settings, Memory()
    for limit in ("LUMBERJACK__PAIRS", "LUMBERJACK__WINDOW_EVENTS"):
        runtime.metrics.limit_hits.labels(limit)
    return Parts(
        stream_listeners(
            runtime, PORT, lambda peer: LumberjackSession(peer, settings.limits, settings.lumberjack, memory)
        )
    )


PROTOCOL: Final = Protocol(
    name="lumberjack",
    title="Lumberjack",
    listeners=(Port("tcp", PORT),),
    ops_port=8081,
    settings=LumberjackSettings,
    build=build,
    client="headrace_lumberjack.client:LumberjackClient",
    session="headrace_lumberjack.session:LumberjackSession",
    again="headrace_lumberjack.again:read",
    hint="filebeat -E output.elasticsearch.enabled=false -E 'output.logstash.hosts=[\"{listen}\"]'",
)
