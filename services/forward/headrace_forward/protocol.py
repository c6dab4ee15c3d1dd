"""Fluentd Forward as Headrace knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace_common.protocol import Port, Protocol

from headrace_forward.settings import PORT, ForwardSettings

if TYPE_CHECKING:
    from headrace_common.service.parts import Parts, Runtime


def build(runtime: Runtime[ForwardSettings]) -> Parts:
    """Makes stream listeners, and UDP for heartbeats."""
    from headrace_common.service.parts import Parts
    from headrace_common.service.service import stream_listeners

    from headrace_forward.heartbeat import HeartbeatListener
    from headrace_forward.session import ForwardSession

    settings = runtime.settings
    for limit in ("FORWARD__CHUNK_BYTES", "FORWARD__HANDSHAKE_BYTES"):
        runtime.metrics.limit_hits.labels(limit)
    listeners = stream_listeners(runtime, PORT, lambda peer: ForwardSession(peer, settings.limits, settings.forward))
    if settings.forward.heartbeat:
        listeners.append(HeartbeatListener(settings.listen, PORT, runtime.ready_problems))
    return Parts(listeners)


PROTOCOL: Final = Protocol(
    name="forward",
    title="Forward",
    listeners=(Port("tcp", PORT),),
    ops_port=8082,
    settings=ForwardSettings,
    build=build,
    client="headrace_forward.client:ForwardClient",
    session="headrace_forward.session:ForwardSession",
    again="headrace_forward.again:read",
    hint="fluent-bit -i cpu -o forward://{listen} -p Require_ack_response=true -p Retry_Limit=no_limits",
)
