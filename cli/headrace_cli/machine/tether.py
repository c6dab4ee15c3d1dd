"""Run a program that gets SIGTERM when its parent dies: ``python -I -S tether.py PARENT_PID PROGRAM ARGUMENT…``

This is a program and not a `preexec_fn`, because code between fork and exec may dead-lock in a process with threads.
Only Linux can send that signal; elsewhere (macOS) the program simply starts.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def tethered(command: list[str]) -> list[str]:
    """Return `command` so that it gets SIGTERM when the calling process dies. An exec starts it, so its pid stays the same."""
    return [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(os.getpid()), *command]


def _main(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before prctl took effect
            sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606  (no shell is wanted)


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2:])
