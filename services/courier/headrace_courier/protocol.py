"""Courier as Headrace knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace_common.protocol import Port, Protocol, Snippets

from headrace_courier.settings import PORT, CourierSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace_common.service.parts import Parts, Runtime
    from headrace_common.session.again import Rejected, Replayed
    from headrace_common.session.client import Client
    from headrace_common.session.explain import Explanation


def build(runtime: Runtime[CourierSettings]) -> Parts:
    """Makes stream listeners only: the protocol has no other transport."""
    from headrace_common.service.parts import Parts
    from headrace_common.service.service import stream_listeners
    from headrace_common.session.memory import Memory

    from headrace_courier.session import CourierSession
    from headrace_courier.wire import MessageKind

    settings, metrics, memory = runtime.settings, runtime.metrics, Memory()

    for kind in (MessageKind.COMPLAINT, MessageKind.UNKNOWN):
        metrics.messages_ignored.labels(kind.name.lower())

    def ignored(kind: MessageKind) -> None:
        metrics.messages_ignored.labels(kind.name.lower()).inc()

    return Parts(
        stream_listeners(
            runtime, PORT, lambda peer: CourierSession(peer, settings.limits, settings.courier, ignored, memory)
        )
    )


def client() -> type[Client]:
    """Returns the class of its client."""
    from headrace_courier.client import CourierClient

    return CourierClient


def explanation() -> Explanation:
    """Returns how `explain` shows its bytes."""
    from headrace_courier.explain import EXPLANATION

    return EXPLANATION


def again() -> Callable[[Rejected, CourierSettings], Replayed]:
    """Returns what reads an item of quarantine once more."""
    from headrace_courier.again import read

    return read


def snippets() -> Snippets:
    """Returns how its clients are pointed at a receiver."""
    from headrace_courier.snippets import SNIPPETS

    return Snippets(SNIPPETS)


PROTOCOL: Final = Protocol(
    name="courier",
    title="Courier",
    module="headrace_courier",
    listeners=(Port("tcp", PORT),),
    ops_port=8083,
    settings=CourierSettings,
    build=build,
    client=client,
    explanation=explanation,
    again=again,
    snippets=snippets,
    hint='log-courier: network: {{ transport: {transport}, servers: [ "{listen}" ] }}',
    tls_hint=", and in it ssl ca: {ca}",
)
