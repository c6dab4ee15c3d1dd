"""``python -m headrace_forward``: the Forward receiver."""

from __future__ import annotations

from headrace_common.event import Protocol
from headrace_common.server import SessionFactory
from headrace_common.service import Answer, main

from headrace_forward.access import security
from headrace_forward.session import ForwardSession
from headrace_forward.settings import PORT, ForwardSettings
from headrace_forward.wire import heartbeat


def _sessions(settings: ForwardSettings) -> SessionFactory:
    guard = security(settings.forward)
    return lambda peer: ForwardSession(peer, settings.limits, settings.forward, guard)


def _datagrams(settings: ForwardSettings) -> Answer | None:
    return heartbeat if settings.forward.heartbeat else None


if __name__ == "__main__":
    main(Protocol.FORWARD, PORT, ForwardSettings, _sessions, _datagrams)
