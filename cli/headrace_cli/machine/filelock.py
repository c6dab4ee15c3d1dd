"""Locks between processes, which the kernel releases when their holder dies."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Final

_ATTEMPTS: Final = 10
_ATTEMPT_SECONDS: Final = 0.02  # `is_locked` holds it for less


def acquire(path: Path) -> int:
    """Take the lock on `path`; return the descriptor that holds it, which children do not inherit.

    Raises `BlockingIOError` if it is held for longer than `is_locked` looks. The file stays after the release; only the kernel's
    lock on it counts.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    for attempt in range(_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if attempt == _ATTEMPTS - 1:
                os.close(descriptor)
                raise
            time.sleep(_ATTEMPT_SECONDS)
        else:
            break
    return descriptor


def is_locked(path: Path) -> bool:
    """Return whether a living process holds the lock on `path`. Those that only look, also at the same time, do not hold it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
