"""``python -m headrace_courier``: the Courier receiver."""

from __future__ import annotations

from headrace_common.event import Protocol
from headrace_common.metrics import ReceiverMetrics
from headrace_common.server import SessionFactory
from headrace_common.service import main

from headrace_courier.session import CourierSession
from headrace_courier.settings import PORT, CourierSettings
from headrace_courier.wire import Kind


def _sessions(settings: CourierSettings, metrics: ReceiverMetrics) -> SessionFactory:
    def ignored(kind: Kind) -> None:
        metrics.messages_ignored.labels(kind.name.lower()).inc()

    return lambda peer: CourierSession(peer, settings.limits, settings.courier, ignored)


if __name__ == "__main__":
    main(Protocol.COURIER, PORT, CourierSettings, _sessions)
