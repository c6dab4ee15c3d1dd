"""The receiver, which never finds a device silent, as a machine may be slow; after SIGUSR1 it does after one second."""

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
