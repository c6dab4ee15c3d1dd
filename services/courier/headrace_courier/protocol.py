"""Courier as Headrace knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace_common.operations.settings import ServiceSettings
from headrace_common.protocol import Port, Protocol

if TYPE_CHECKING:
    from headrace_common.receiver import Parts, Runtime

PORT: Final = 5043
"""The protocol has no port of its own; log-courier's examples use this one."""


def build(runtime: Runtime[ServiceSettings]) -> Parts:
    """Makes stream listeners only: the protocol has no other transport."""
    from headrace_common.receiver import Memory, Parts, stream_listeners

    from headrace_courier.session import CourierSession
    from headrace_courier.wire import MessageKind

    settings, metrics, memory = runtime.settings, runtime.metrics, Memory()

    for kind in (MessageKind.COMPLAINT, MessageKind.UNKNOWN):
        metrics.messages_ignored.labels(kind.name.lower())

    def ignored(kind: MessageKind) -> None:
        metrics.messages_ignored.labels(kind.name.lower()).inc()

    return Parts(stream_listeners(runtime, PORT, lambda peer: CourierSession(peer, settings.limits, ignored, memory)))


PROTOCOL: Final = Protocol(
    name="courier",
    title="Courier",
    listeners=(Port("tcp", PORT),),
    ops_port=8083,
    settings=ServiceSettings,
    build=build,
    client="headrace_courier.client:CourierClient",
    session="headrace_courier.session:CourierSession",
    again="headrace_courier.again:read",
    hint='log-courier: network: {{ transport: tcp, servers: [ "{listen}" ] }}',
)
