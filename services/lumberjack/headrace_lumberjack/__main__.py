"""``python -m headrace_lumberjack``: the Lumberjack receiver."""

from __future__ import annotations

from headrace_common.event import Protocol
from headrace_common.metrics import ReceiverMetrics
from headrace_common.server import SessionFactory
from headrace_common.service import main

from headrace_lumberjack.session import LumberjackSession
from headrace_lumberjack.settings import PORT, LumberjackSettings


def _sessions(settings: LumberjackSettings, _: ReceiverMetrics) -> SessionFactory:
    return lambda peer: LumberjackSession(peer, settings.limits, settings.lumberjack)


if __name__ == "__main__":
    main(Protocol.LUMBERJACK, PORT, LumberjackSettings, _sessions)
