"""Fluentd Forward as Headrace knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace_common.protocol import Port, Protocol, Snippets

from headrace_forward.attributes import ForwardAttribute
from headrace_forward.settings import PORT, ForwardSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace_common.service.parts import Parts, Runtime
    from headrace_common.session.again import Rejected, Replayed
    from headrace_common.session.client import Client
    from headrace_common.session.explain import Explanation


def build(runtime: Runtime[ForwardSettings]) -> Parts:
    """Makes stream listeners, and UDP for heartbeats."""
    from headrace_common.service.parts import Parts
    from headrace_common.service.service import stream_listeners

    from headrace_forward.heartbeat import HeartbeatListener
    from headrace_forward.login.access import security
    from headrace_forward.session import ForwardSession

    settings = runtime.settings
    for limit in ("FORWARD__CHUNK_BYTES", "FORWARD__HANDSHAKE_BYTES"):
        runtime.metrics.limit_hits.labels(limit)
    guard = security(settings.forward)
    listeners = stream_listeners(
        runtime, PORT, lambda peer: ForwardSession(peer, settings.limits, settings.forward, guard)
    )
    if settings.forward.heartbeat:
        listeners.append(HeartbeatListener(settings.listen, PORT, runtime.ready_problems))
    return Parts(listeners)


def client() -> type[Client]:
    """Returns the class of its client."""
    from headrace_forward.client import ForwardClient

    return ForwardClient


def explanation() -> Explanation:
    """Returns how `explain` shows its bytes."""
    from headrace_forward.explain import EXPLANATION

    return EXPLANATION


def again() -> Callable[[Rejected, ForwardSettings], Replayed]:
    """Returns what reads an item of quarantine once more."""
    from headrace_forward.again import read

    return read


def snippets() -> Snippets:
    """Returns how its clients are pointed at a receiver."""
    from headrace_forward.snippets import SNIPPETS

    return Snippets(SNIPPETS)


PROTOCOL: Final = Protocol(
    name="forward",
    title="Forward",
    module="headrace_forward",
    listeners=(Port("tcp", PORT),),
    ops_port=8082,
    settings=ForwardSettings,
    build=build,
    client=client,
    explanation=explanation,
    again=again,
    snippets=snippets,
    asked=ForwardAttribute.CHUNK.value,
    hint="fluent-bit -i cpu -o forward://{listen} -p Require_ack_response=true -p Retry_Limit=no_limits",
    tls_hint=" -p tls=on -p tls.ca_file={ca}",
)
