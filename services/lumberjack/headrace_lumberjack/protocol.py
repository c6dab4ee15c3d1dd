"""Lumberjack as Headrace knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace_common.protocol import Port, Protocol, Snippets

from headrace_lumberjack.settings import PORT, LumberjackSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace_common.service.parts import Parts, Runtime
    from headrace_common.session.again import Rejected, Replayed
    from headrace_common.session.client import Client
    from headrace_common.session.explain import Explanation


def build(runtime: Runtime[LumberjackSettings]) -> Parts:
    """Makes stream listeners only: the protocol has no other transport."""
    from headrace_common.service.parts import Parts
    from headrace_common.service.service import stream_listeners
    from headrace_common.session.memory import Memory

    from headrace_lumberjack.session import LumberjackSession

    settings, memory = runtime.settings, Memory()
    for limit in ("LUMBERJACK__PAIRS", "LUMBERJACK__WINDOW_EVENTS"):
        runtime.metrics.limit_hits.labels(limit)
    return Parts(
        stream_listeners(
            runtime, PORT, lambda peer: LumberjackSession(peer, settings.limits, settings.lumberjack, memory)
        )
    )


def client() -> type[Client]:
    """Returns the class of its client."""
    from headrace_lumberjack.client import LumberjackClient

    return LumberjackClient


def explanation() -> Explanation:
    """Returns how `explain` shows its bytes."""
    from headrace_lumberjack.explain import EXPLANATION

    return EXPLANATION


def again() -> Callable[[Rejected, LumberjackSettings], Replayed]:
    """Returns what reads an item of quarantine once more."""
    from headrace_lumberjack.again import read

    return read


def snippets() -> Snippets:
    """Returns how its clients are pointed at a receiver."""
    from headrace_lumberjack.snippets import SNIPPETS

    return Snippets(SNIPPETS)


PROTOCOL: Final = Protocol(
    name="lumberjack",
    title="Lumberjack",
    module="headrace_lumberjack",
    listeners=(Port("tcp", PORT),),
    ops_port=8081,
    settings=LumberjackSettings,
    build=build,
    client=client,
    explanation=explanation,
    again=again,
    snippets=snippets,
    hint="filebeat -E 'output.logstash.hosts=[\"{listen}\"]'",
    tls_hint=" -E 'output.logstash.ssl.certificate_authorities=[\"{ca}\"]'",
)
