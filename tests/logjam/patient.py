"""The receiver, which never finds a device silent: a machine may be slow."""

from __future__ import annotations

import math

from headrace_common.protocol import run
from headrace_logjam.devices import endpoints
from headrace_logjam.protocol import PROTOCOL

if __name__ == "__main__":
    endpoints.SILENCE = math.inf  # type: ignore[misc]
    run(PROTOCOL)
