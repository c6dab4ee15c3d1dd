"""The receiver, which finds a device silent after one second."""

from __future__ import annotations

from headrace_common.record.contract import WireProtocol
from headrace_common.service.service import main
from headrace_logjam.__main__ import build
from headrace_logjam.devices import endpoints
from headrace_logjam.settings import LogjamSettings

if __name__ == "__main__":
    endpoints.SILENCE = 1.0  # type: ignore[misc]
    endpoints.LOOK = 0.1  # type: ignore[misc]
    main(WireProtocol.LOGJAM, LogjamSettings, build)
