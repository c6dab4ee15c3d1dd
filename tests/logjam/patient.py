"""The receiver, which never finds a device silent: on a slow machine half a minute may pass between two steps of a test."""

from __future__ import annotations

import math

from headrace_common.protocol import run
from headrace_logjam.devices import endpoints
from headrace_logjam.protocol import PROTOCOL

if __name__ == "__main__":
    endpoints.SILENCE = math.inf  # type: ignore[misc]
    run(PROTOCOL)
