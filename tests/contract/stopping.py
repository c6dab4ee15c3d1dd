"""Processes that stand still."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import psutil


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """SIGSTOP now, SIGCONT at the end, whatever happens."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
