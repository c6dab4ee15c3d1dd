"""RELP and syslog as Headrace knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace_common.operations.settings import ServiceSettings
from headrace_common.protocol import Port, Protocol

if TYPE_CHECKING:
    from headrace_common.operations.metrics import Catalogue
    from headrace_common.receiver import Parts, Runtime

RELP_PORT: Final = 2514
"""The port of rsyslog's examples."""

SYSLOG_PORT: Final = 5514
"""For TCP and UDP: syslog's own, 514, is one that only root may open."""


def dropped_datagrams(catalogue: Catalogue) -> Any:
    """Declares the metric that only the receiver of syslog has."""
    return catalogue.counter(
        "syslog_datagrams_dropped",
        "Datagrams that the kernel dropped because they were not read in time, as the next datagram tells. They are lost.",
    )


def build_relp(runtime: Runtime[ServiceSettings]) -> Parts:
    """Makes stream listeners only: the protocol has no other transport."""
    from headrace_common.receiver import Memory, Parts, stream_listeners

    from headrace_syslog.session import RelpSession

    limits, memory = runtime.settings.limits, Memory()
    return Parts(stream_listeners(runtime, RELP_PORT, lambda peer: RelpSession(peer, limits, memory)))


def build_syslog(runtime: Runtime[ServiceSettings]) -> Parts:
    """Makes stream listeners and, without TLS, a socket for datagrams: these would come unencrypted, from anybody."""
    from headrace_common.receiver import Memory, Parts, stream_listeners

    from headrace_syslog.datagrams import DatagramListener
    from headrace_syslog.session import DatagramSession, StreamSession

    limits, memory = runtime.settings.limits, Memory()
    listeners = stream_listeners(runtime, SYSLOG_PORT, lambda peer: StreamSession(peer, limits, memory))
    if runtime.settings.tls.cert is None:
        dropped = dropped_datagrams(runtime.metrics).inc
        listeners.append(DatagramListener(runtime, SYSLOG_PORT, DatagramSession(limits, memory), dropped))
    return Parts(listeners)


RELP: Final = Protocol(
    name="relp",
    title="RELP",
    listeners=(Port("tcp", RELP_PORT),),
    ops_port=8090,
    settings=ServiceSettings,
    build=build_relp,
    client="headrace_syslog.client:RelpClient",
    session="headrace_syslog.session:RelpSession",
    again="headrace_syslog.again:read",
    hint='rsyslog, after module(load="omrelp"): *.* :omrelp:{listen}',
)

SYSLOG: Final = Protocol(
    name="syslog",
    title="Syslog",
    listeners=(Port("tcp", SYSLOG_PORT),),
    ops_port=8091,
    settings=ServiceSettings,
    build=build_syslog,
    metrics=dropped_datagrams,
    session="headrace_syslog.session:StreamSession",
    again="headrace_syslog.again:read",
    hint="rsyslog: *.* @@(o){listen}",
)
