"""Processes and files of others, which may go at any moment: between being listed and being looked at, too."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable

import psutil


def below(pid: int) -> list[psutil.Process]:
    """What process `pid` has started, and what that has; none if it has gone."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def command(process: psutil.Process) -> list[str]:
    """The words of its command line; none of a process that has gone, or ended and was not waited for."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def gone(pids: Iterable[int]) -> bool:
    """Whether all have ended. Somebody may still have to wait for them, which after a parent's death is the first process's
    affair.
    """
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                return False
    return True


def kill(pid: int) -> None:
    """SIGKILL, unless it has gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
