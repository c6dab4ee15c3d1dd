"""A lock between processes that the kernel releases when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class Locked(Exception):  # noqa: N818  (a state, not a fault)
    """Somebody else holds the lock."""


def acquire(path: Path) -> int:
    """Take the lock on `path` without waiting and return the descriptor that holds it (not inherited by children).

    Raises `Locked`. The file stays behind; only the kernel's lock on it counts.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Locked(str(path)) from None
    return descriptor


def held(path: Path) -> bool:
    """Whether a living process holds the lock on `path`."""
    if not path.exists():
        return False
    try:
        os.close(acquire(path))
    except Locked:
        return True
    return False


@contextmanager
def locked(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock on `path`, waiting for it as long as it takes; `on_wait` is called once if it must be waited for."""
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
