"""``python -m headrace_forward``: the Forward receiver."""

from __future__ import annotations

from headrace_common.event import Protocol
from headrace_common.metrics import ReceiverMetrics
from headrace_common.server import SessionFactory
from headrace_common.service import main

from headrace_forward.session import ForwardSession
from headrace_forward.settings import PORT, ForwardSettings


def _sessions(settings: ForwardSettings, _: ReceiverMetrics) -> SessionFactory:
    return lambda peer: ForwardSession(peer, settings.limits, settings.forward)


if __name__ == "__main__":
    main(Protocol.FORWARD, PORT, ForwardSettings, _sessions)
