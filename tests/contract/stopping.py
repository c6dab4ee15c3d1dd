"""Processes that stand still."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.contract.waiting import PATIENCE


def states(pid: int) -> set[str]:
    """What the threads of a process do now, as ``/proc`` says: ``T`` is stopped."""
    found = set()
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # the thread has ended
            found.add(stat.read_text().rpartition(")")[2].split()[0])
    return found


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """SIGSTOP, and every thread stands still when this goes on; SIGCONT at the end, whatever happens.

    Sending the signal is not enough: all threads run on until one of them was scheduled and has taken it, which on a busy
    machine is long enough for a broker to store another batch.
    """
    os.kill(pid, signal.SIGSTOP)
    try:
        deadline = time.monotonic() + PATIENCE
        while states(pid) - {"T"}:
            assert time.monotonic() < deadline, f"{pid} does not stand still: {states(pid)}"
            time.sleep(0.001)
        yield
    finally:
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
