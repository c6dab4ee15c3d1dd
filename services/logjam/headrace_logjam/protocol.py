"""Logjam as Headrace knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace_common.protocol import Port, Protocol

from headrace_logjam.metrics import LogjamMetrics
from headrace_logjam.settings import PORT, PULL_PORT, LogjamSettings

if TYPE_CHECKING:
    from headrace_common.service.parts import Parts, Runtime


def build(runtime: Runtime[LogjamSettings]) -> Parts:
    """Makes the sockets."""
    from headrace_common.service.parts import Parts

    from headrace_logjam.sockets import Sockets

    sockets = Sockets(runtime)
    return Parts(sockets.listeners, sockets)


PROTOCOL: Final = Protocol(
    name="logjam",
    title="Logjam",
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
