"""A lock between processes. The kernel releases it when its holder dies, even by SIGKILL."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class Locked(Exception):  # noqa: N818  (a state, not a fault)
    """Another process holds the lock."""


def acquire(path: Path) -> int:
    """Take the lock on `path` without waiting; return the descriptor that holds it, which children do not inherit.

    Raises `Locked`. The file stays after the release; only the kernel's lock on it counts.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Locked(str(path)) from None
    return descriptor


def is_locked(path: Path) -> bool:
    """Return whether a living process holds the lock on `path`."""
    if not path.exists():
        return False
    try:
        os.close(acquire(path))
    except Locked:
        return True
    return False


@contextmanager
def locked(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock on `path`. Waits for it without a limit, and calls `on_wait` once if it has to wait."""
    try:
        descriptor = acquire(path)
    except Locked:
        on_wait()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)
