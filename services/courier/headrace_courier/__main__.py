"""``python -m headrace_courier``: the Courier receiver."""

from __future__ import annotations

from headrace_common.record.contract import WireProtocol
from headrace_common.service.parts import Parts, Runtime
from headrace_common.service.service import main, stream_listeners
from headrace_common.session.memory import Memory

from headrace_courier.session import CourierSession
from headrace_courier.settings import PORT, CourierSettings
from headrace_courier.wire import MessageKind


def build(runtime: Runtime[CourierSettings]) -> Parts:
    """Stream listeners only: the protocol has no other transport."""
    settings, metrics, memory = runtime.settings, runtime.metrics, Memory()

    def ignored(kind: MessageKind) -> None:
        metrics.messages_ignored.labels(kind.name.lower()).inc()

    return Parts(
        stream_listeners(
            runtime, PORT, lambda peer: CourierSession(peer, settings.limits, settings.courier, ignored, memory)
        )
    )


if __name__ == "__main__":
    main(WireProtocol.COURIER, CourierSettings, build)
