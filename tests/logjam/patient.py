"""The receiver, which never finds a device silent, and looks at the topics for as long as it takes after a kill: a machine may be
slow.
"""

from __future__ import annotations

import math

from headrace_common.protocol import run
from headrace_logjam.devices import endpoints, tail
from headrace_logjam.protocol import PROTOCOL

if __name__ == "__main__":
    endpoints.SILENCE = math.inf  # type: ignore[misc]
    tail.TIME = 600.0  # type: ignore[misc]
    tail.WINDOW_MS = 3_600_000  # type: ignore[misc]
    run(PROTOCOL)
