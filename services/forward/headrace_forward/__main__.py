"""``python -m headrace_forward``: the Forward receiver."""

from __future__ import annotations

from headrace_common.record.contract import WireProtocol
from headrace_common.service.parts import Parts, Runtime
from headrace_common.service.service import main, stream_listeners

from headrace_forward.heartbeat import HeartbeatListener
from headrace_forward.login.access import security
from headrace_forward.session import ForwardSession
from headrace_forward.settings import PORT, ForwardSettings


def build(runtime: Runtime[ForwardSettings]) -> Parts:
    """Stream listeners, and UDP for heartbeats."""
    settings = runtime.settings
    guard = security(settings.forward)
    listeners = stream_listeners(
        runtime, PORT, lambda peer: ForwardSession(peer, settings.limits, settings.forward, guard)
    )
    if settings.forward.heartbeat:
        listeners.append(HeartbeatListener(settings.listen, PORT, runtime.ready_problems))
    return Parts(listeners)


if __name__ == "__main__":
    main(WireProtocol.FORWARD, ForwardSettings, build)
