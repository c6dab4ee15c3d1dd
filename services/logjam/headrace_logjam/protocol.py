"""Logjam as Headrace knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace_common.protocol import Port, Protocol

from headrace_logjam.metrics import LogjamMetrics
from headrace_logjam.settings import PORT, PULL_PORT, LogjamSettings

if TYPE_CHECKING:
    from headrace_common.service.parts import Parts, Runtime


def build(runtime: Runtime[LogjamSettings]) -> Parts:
    """Makes a socket that answers; one that does not and one that publishes, unless their ports are 0; and the endpoints."""
    import zmq
    from headrace_common.operations.networks import networks
    from headrace_common.service.parts import Parts

    from headrace_logjam.access import Access, Context, CurvePair
    from headrace_logjam.devices.endpoints import Subscription
    from headrace_logjam.peers import Doors
    from headrace_logjam.sockets import BoundSocket, ProducerSocket, PubSocket, SharedState, Sockets

    settings, logjam, metrics = runtime.settings, runtime.settings.logjam, LogjamMetrics(runtime.metrics)
    context: Context = zmq.Context()
    access = Access(context, networks(logjam.allow), logjam.curve_clients)
    keys = CurvePair.of(logjam.curve_secret_key.get_secret_value())
    doors = Doors(context, runtime.receiver, metrics)
    around = SharedState(runtime, metrics, context, doors, access, keys if logjam.curve_clients else None)
    pub = PubSocket(around) if logjam.pub_port else None
    sockets: list[BoundSocket] = [ProducerSocket(around, settings.listen.port or PORT, pub, answers=True)]
    if logjam.pull_port:
        sockets.append(ProducerSocket(around, logjam.pull_port, pub, answers=False))
    if pub is not None:
        sockets.append(pub)
    endpoints = logjam.endpoints.items()
    subscriptions = [Subscription(runtime, metrics, context, keys, *each) for each in endpoints]
    return Parts(sockets, Sockets(around, sockets, subscriptions))


PROTOCOL: Final = Protocol(
    name="logjam",
    title="Logjam",
    module="headrace_logjam",
    listeners=(Port("listen", PORT), Port("pull", PULL_PORT, "logjam", "pull_port")),
    ops_port=8084,
    settings=LogjamSettings,
    build=build,
    metrics=LogjamMetrics,
    client="headrace_logjam.client:LogjamClient",
    again="headrace_logjam.again:read",
    hint='logjam_agent: LogjamAgent.add_forwarder(:zmq, host: "{listen}")',
    curve=True,
)
