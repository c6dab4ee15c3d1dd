"""``python -m headrace_lumberjack``: the Lumberjack receiver."""

from __future__ import annotations

from headrace_common.record.contract import WireProtocol
from headrace_common.service.parts import Parts, Runtime
from headrace_common.service.service import main, stream_listeners
from headrace_common.session.memory import Memory

from headrace_lumberjack.session import LumberjackSession
from headrace_lumberjack.settings import PORT, LumberjackSettings


def build(runtime: Runtime[LumberjackSettings]) -> Parts:
    """Stream listeners only: the protocol has no other transport."""
    settings, memory = runtime.settings, Memory()
    return Parts(
        stream_listeners(
            runtime, PORT, lambda peer: LumberjackSession(peer, settings.limits, settings.lumberjack, memory)
        )
    )


if __name__ == "__main__":
    main(WireProtocol.LUMBERJACK, LumberjackSettings, build)
