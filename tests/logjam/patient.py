"""The receiver, which never finds a device silent: on a slow machine half a minute may pass between two steps of a test."""

from __future__ import annotations

import math

from headrace_common.record.contract import WireProtocol
from headrace_common.service.service import main
from headrace_logjam.__main__ import build
from headrace_logjam.devices import endpoints
from headrace_logjam.settings import LogjamSettings

if __name__ == "__main__":
    endpoints.SILENCE = math.inf  # type: ignore[misc]
    main(WireProtocol.LOGJAM, LogjamSettings, build)
