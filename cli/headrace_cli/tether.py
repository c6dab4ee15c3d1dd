"""Starts a program that ends when its parent does: ``python -I -S tether.py PARENT_PID PROGRAM ARGUMENT…``

A file of its own and not a `preexec_fn`, because code between fork and exec may dead-lock in a process with threads.
Where the kernel has no such signal (macOS), the program simply starts.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def tethered(command: list[str]) -> list[str]:
    """`command`, made to get SIGTERM when the calling process dies, however it dies. Keeps its pid: it is an exec."""
    return [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(os.getpid()), *command]


def _main(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it died before the kernel knew
            sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606  (no shell is wanted)


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2:])
