"""RELP and syslog as Headrace knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace_common.operations.settings import ServiceSettings
from headrace_common.protocol import Port, Protocol

from headrace_syslog.metrics import SyslogMetrics
from headrace_syslog.settings import RELP_PORT, SYSLOG_PORT

if TYPE_CHECKING:
    from headrace_common.receiver import Parts, Runtime


def build_relp(runtime: Runtime[ServiceSettings]) -> Parts:
    """Makes stream listeners only: the protocol has no other transport."""
    from headrace_common.receiver import Memory, Parts, stream_listeners

    from headrace_syslog.session.relp import RelpSession

    settings, memory = runtime.settings, Memory()
    return Parts(stream_listeners(runtime, RELP_PORT, lambda peer: RelpSession(peer, settings.limits, memory)))


def build_syslog(runtime: Runtime[ServiceSettings]) -> Parts:
    """Makes stream listeners and, without TLS, a socket for datagrams: these would come unencrypted, from anybody."""
    from headrace_common.receiver import Memory, Parts, stream_listeners

    from headrace_syslog.datagrams import DatagramListener
    from headrace_syslog.session.plain import DatagramSession, StreamSession

    settings, memory = runtime.settings, Memory()
    own = settings.limits, memory
    listeners = stream_listeners(runtime, SYSLOG_PORT, lambda peer: StreamSession(peer, *own))
    if settings.tls.cert is None:
        listeners.append(DatagramListener(runtime, DatagramSession(*own)))
    return Parts(listeners)


RELP: Final = Protocol(
    name="relp",
    title="RELP",
    module="headrace_syslog.relp",
    listeners=(Port("tcp", RELP_PORT),),
    ops_port=8090,
    settings=ServiceSettings,
    build=build_relp,
    client="headrace_syslog.client:RelpClient",
    again="headrace_syslog.again:read",
    hint='rsyslog: action(type="omrelp" target="…" port="{listen}")',
)

SYSLOG: Final = Protocol(
    name="syslog",
    title="Syslog",
    module="headrace_syslog.syslog",
    listeners=(Port("tcp", SYSLOG_PORT),),
    ops_port=8091,
    settings=ServiceSettings,
    build=build_syslog,
    metrics=SyslogMetrics,
    again="headrace_syslog.again:read",
    hint='rsyslog: action(type="omfwd" protocol="tcp" tcp_framing="octet-counted" target="…" port="{listen}")',
)
