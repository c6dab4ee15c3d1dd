"""The receiver, which finds a device silent after one second, from the moment on that SIGUSR1 says so.

Until then it is as patient as `patient`: a test may send without meeting the moment in which an endpoint is connected anew.
"""

from __future__ import annotations

import math
import signal

from headrace_common.protocol import run
from headrace_logjam.devices import endpoints
from headrace_logjam.protocol import PROTOCOL


def hurry(*_: object) -> None:
    """A second without a message is a silence from now on."""
    endpoints.SILENCE = 1.0  # type: ignore[misc]


if __name__ == "__main__":
    endpoints.SILENCE = math.inf  # type: ignore[misc]
    endpoints.LOOK = 0.1  # type: ignore[misc]
    signal.signal(signal.SIGUSR1, hurry)
    run(PROTOCOL)
