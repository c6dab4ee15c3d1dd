"""RELP and syslog as Headrace knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace_common.protocol import Port, Protocol

from headrace_syslog.settings import RELP_PORT, RelpSettings

if TYPE_CHECKING:
    from headrace_common.receiver import Parts, Runtime


def build_relp(runtime: Runtime[RelpSettings]) -> Parts:
    """Makes stream listeners only: the protocol has no other transport."""
    from headrace_common.receiver import Memory, Parts, stream_listeners

    from headrace_syslog.session.relp import RelpSession

    settings, memory = runtime.settings, Memory()
    return Parts(
        stream_listeners(runtime, RELP_PORT, lambda peer: RelpSession(peer, settings.limits, settings.relp, memory))
    )


RELP: Final = Protocol(
    name="relp",
    title="RELP",
    module="headrace_syslog.relp",
    listeners=(Port("tcp", RELP_PORT),),
    ops_port=8090,
    settings=RelpSettings,
    build=build_relp,
    client="headrace_syslog.client:RelpClient",
    again="headrace_syslog.again:read_relp",
    hint='rsyslog: action(type="omrelp" target="…" port="{listen}")',
)
